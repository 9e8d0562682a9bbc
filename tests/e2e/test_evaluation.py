"""Evaluation while training goes on: its rows, where they stand, what a restart makes of them, and what is refused."""

import json
import math

import h5py
import pytest

RESNET = "model.name=resnet-nano"
EVALUATED = "\n[evaluate]\nevery = 3\nnum_samples = 21\nbatch = 8\n\n[checkpoint]\nevery = 4\nkeep = 0\n"
OTHER = ("--set", RESNET, "--set", "data.format=synthetic", "--set", "data.paths=[]", "--set", "train.optimizer=sgd")


def evaluations(folder, attempt):
    """Rows of /evaluations, and the same of the lines."""
    names = ("trained_steps", "epoch", "num_samples", "loss", "top_1", "top_5", "arena_bytes")
    with h5py.File(folder / f"{attempt}.h5") as results:
        columns = [results[f"evaluations/{name}"][:].tolist() for name in names]
    lines = [json.loads(line) for line in (folder / f"{attempt}.jsonl").read_text().splitlines()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], [
        {name: line[name] for name in names} for line in lines if line["kind"] == "evaluation"
    ]


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_trained_is_evaluated_and_a_restart_goes_on(strata, experiment, tmp_path, ranks):
    file = experiment(append=EVALUATED)
    words = (*OTHER, "--set", f"resources.ranks_per_node={ranks}")
    ended = strata(ranks, "run", file, *words)
    assert ended.code == 0, ended.error
    assert "evaluated after 3 steps" in ended.output
    (point,) = sorted(tmp_path.glob("results/e2e/????????????"))
    rows, lines = evaluations(point, 1)
    assert rows == lines
    assert [row["trained_steps"] for row in rows] == [3, 6, 8], "every 3 steps and the last"
    for row in rows:
        assert row["num_samples"] == 21
        assert 0.0 <= row["top_1"] <= row["top_5"] <= 1.0
        assert (21 * row["top_1"]) == pytest.approx(round(21 * row["top_1"]), abs=1e-9)
        assert row["arena_bytes"] > 0
    with h5py.File(point / "1.h5") as results:
        assert results.attrs["data_description"].startswith("synthetic: ")
        assert results.attrs["evaluation_data_description"] != results.attrs["data_description"]
        metrics = [name.decode() for name in results["predictions/metric"][:]]
        said, measured = (
            results[f"predictions/{name}"][metrics.index("arena_bytes")] for name in ("predicted", "measured")
        )
    assert said == measured == rows[-1]["arena_bytes"], "memory is predicted to the byte"
    planned = strata(None, "plan", file, *words)
    assert f"# evaluation of 8 samples at a time: {int(said)} bytes beside the training's" in planned.output
    again = strata(ranks, "run", file, *words, "--set", f"checkpoint.restart_from={point}/checkpoints/step_4.h5")
    assert again.code == 0, again.error
    rest, _ = evaluations(point, 2)
    assert [row["trained_steps"] for row in rest] == [6, 8]
    for ours, unbroken in zip(rest, rows[1:], strict=True):
        # One rank keeps what it kept; of several each has a part of a sum, which a checkpoint adds up.
        assert ours["loss"] == (unbroken["loss"] if ranks == 1 else pytest.approx(unbroken["loss"], rel=1e-5))
        assert (ours["top_1"], ours["epoch"]) == (unbroken["top_1"], unbroken["epoch"])


def test_evaluation_changes_nothing_of_training(strata, experiment, tmp_path):
    file = experiment(append="")
    checksums = []
    for every in (0, 3):
        words = (*OTHER, "--set", f"evaluate.every={every}", "--set", "evaluate.num_samples=9")
        assert strata(2, "run", file, *words, "--results", tmp_path / str(every)).code == 0
        (lines,) = (tmp_path / str(every)).glob("e2e/????????????/1.jsonl")
        ending = json.loads(lines.read_text().splitlines()[-1])
        checksums.append(ending["parameter_checksum"])
    assert checksums[0] == checksums[1] != ""


def test_a_simulation_predicts_the_memory_of_evaluation(strata, experiment, tmp_path):
    words = ("--set", "cluster=a100-2x8", "--set", "resources.memory_gib=1")
    file = experiment(append="\n[evaluate]\nevery = 3\nnum_samples = 21\n")
    assert strata(None, "simulate", file, *OTHER, *words).code == 0
    (results,) = tmp_path.glob("results/e2e/????????????/1.h5")
    with h5py.File(results) as ended:
        assert [name.decode() for name in ended["predictions/metric"][:]] == ["arena_bytes"]
        (said,) = ended["predictions/predicted"][:]
        assert said > 0
        assert math.isnan(ended["predictions/measured"][0])
        assert ended.attrs["data_description"] == "", "nothing is read"
        peak = ended["steps/arena_peak_bytes"][0]
    little = f"resources.memory_gib={(peak + said / 2) / 2**30}"
    refused = strata(None, "simulate", file, *OTHER, *words, "--set", little)
    assert "beside the" in refused.output + refused.error


def test_evaluation_without_data_is_refused(strata, experiment):
    ended = strata(1, "run", experiment(append="\n[evaluate]\nevery = 3\n"), "--set", "resources.ranks_per_node=1")
    assert ended.code != 0
    assert "evaluation without data" in ended.output + ended.error


def test_a_submission_is_refused_whose_evaluation_has_no_data(strata, experiment):
    words = ("--dry-run", "--set", "resources.ranks_per_node=1")
    assert strata(None, "submit", experiment(), *words).code == 0
    ended = strata(None, "submit", experiment(append="\n[evaluate]\nevery = 3\n"), *words)
    assert ended.code != 0
    assert "evaluation without data" in ended.error
