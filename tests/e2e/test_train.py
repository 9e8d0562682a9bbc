"""Training as the quickstart does it, in small."""

import json
import math
import statistics
import tomllib
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def losses(file):
    return [row["loss"] for row in map(json.loads, file.read_text().splitlines()) if row["kind"] == "step"]


STEPS = 20  # a loss that falls by a tenth and more


def has_learned(values):
    return statistics.mean(values[-5:]) <= 0.9 * statistics.mean(values[:5])


@pytest.fixture
def quickstart(strata, tmp_path):
    def run(ranks, *words):
        quick = ("--set", "measure.peak=quick")
        ended = strata(ranks, "run", ROOT / "experiments/quickstart.toml", *quick, *words, timeout=300)
        assert ended.code == 0, ended.error
        return {
            json.loads(file.read_text().splitlines()[0])["model_name"]: file
            for file in tmp_path.glob("results/quickstart/*/1.jsonl")
            if json.loads(file.read_text().splitlines()[0])["num_ranks"] == ranks
        }

    return run


def test_four_ranks_learn_what_one_learns(quickstart):
    one = quickstart(1, "--set", f"train.steps={STEPS}")
    four = quickstart(4, "--set", f"train.steps={STEPS}")
    for model in ("gpt-micro", "vgg13-cifar"):
        alone, together = losses(one[model]), losses(four[model])
        assert len(alone) == len(together) == STEPS
        # VGG-13 at a high loss amplifies rounding; the GPT's losses stay together.
        same = STEPS if model == "gpt-micro" else 4
        assert together[:same] == pytest.approx(alone[:same], rel=1e-3)
    # VGG-13 takes three times as long.
    assert has_learned(losses(four["gpt-micro"]))


def test_predictions_stand_beside_measurements(quickstart):
    for file in quickstart(2, "--set", "train.steps=6").values():
        with h5py.File(file.with_suffix(".h5")) as results:
            columns = (results[f"predictions/{name}"][:] for name in ("metric", "predicted", "measured", "source"))
            rows = {
                metric.decode(): (predicted, measured, source.decode())
                for metric, predicted, measured, source in zip(*columns, strict=True)
            }
        assert {"arena_peak_bytes", "all_reduce_sent_bytes"} <= set(rows)
        for metric, (predicted, measured, source) in rows.items():
            if source == "program":
                assert predicted == measured, metric
        predicted, measured, source = rows["step_seconds_max"]
        assert "simulator, analytic" in source
        assert 0.01 < predicted / measured < 100.0, "the same unit; how near is a busy machine's matter"
        assert rows["kernel.linear_forward_seconds"][0] > 0
        assert rows["all_reduce_sent_bytes"][0] > 0


def test_results_say_what_instructions_and_what_peak_they_are_of(strata, experiment, tmp_path):
    assert strata(2, "run", experiment(), environment={"STRATA_MAX_CPU_ISA": "avx2"}).code == 0
    with h5py.File(next(tmp_path.glob("results/e2e/*/1.h5"))) as file:
        assert "instruction_set=avx2" in file.attrs["library_versions"]
        assert "STRATA_MAX_CPU_ISA=avx2" in file.attrs["environment"]
        assert file.attrs["peak_source"] == "measured: oneDNN square matrix product, best of n = 512, all ranks at once"


def test_events_lie_within_their_step(strata, experiment, tmp_path):
    assert strata(2, "run", experiment(), "--set", "measure.timeline_steps=2").code == 0
    rows = [json.loads(line) for line in next(tmp_path.glob("results/e2e/*/1.jsonl")).read_text().splitlines()]
    seconds = {row["step"]: row["step_seconds_max"] for row in rows if row["kind"] == "step"}
    events = [row for row in rows if row["kind"] == "event"]
    assert {event["rank"] for event in events} == {0, 1}
    assert len({event["step"] for event in events}) == 2
    for event in events:
        assert 0 <= event["begin_seconds"] <= event["end_seconds"] <= seconds[event["step"]]


def test_the_bandwidth_of_a_run_is_measured(strata, experiment, tmp_path):
    for ranks in (1, 2):
        assert strata(ranks, "run", experiment(ranks=ranks)).code == 0
    for path in tmp_path.glob("results/e2e/*/1.h5"):
        with h5py.File(path) as file:
            measured = file.attrs["all_reduce_bytes_per_second"]
            assert math.isnan(measured) if file.attrs["num_ranks"] == 1 else measured > 1e7


def test_a_pipeline_learns_what_one_rank_learns(strata, experiment, tmp_path):
    def run(ranks, strategy):
        replace = [('name = "ddp"', strategy), ("global_batch = 12", "global_batch = 12\nmicro_batches = 3")]
        file = experiment(ranks=ranks, replace=[*replace, ("steps = 8", "steps = 12\nclip_norm = 1.0")])
        folder = tmp_path / strategy.replace('"', "").replace(" ", "").replace("\n", "_")
        ended = strata(ranks, "run", file, "--results", folder)
        assert ended.code == 0, ended.error
        return [json.loads(line) for line in next(folder.glob("e2e/*/1.jsonl")).read_text().splitlines()]

    def steps(rows):
        return [row for row in rows if row["kind"] == "step"]

    alone = run(1, 'name = "single"')
    for strategy in ('name = "1f1b"', 'name = "gpipe"'):
        rows = run(2, strategy)
        for key in ("loss", "gradient_norm"):
            expected = [row[key] for row in steps(alone)]
            assert [row[key] for row in steps(rows)] == pytest.approx(expected, rel=1e-4)
        # Three micro-batches of four sequences, 64 tokens 64 wide in f32, each way.
        assert {row["send_sent_bytes"] for row in steps(rows)} == {3 * 4 * 64 * 64 * 4}
        names = {
            rank: {row["name"] for row in rows if row["kind"] == "event" and row["rank"] == rank} for rank in (0, 1)
        }
        assert "send block[0].mlp.add" in names[0] and "recv block[0].mlp.add" in names[1]
        assert "send block[0].mlp.add/gradient" in names[1] and "recv block[0].mlp.add/gradient" in names[0]
        assert "load_tokens input" in names[0] and "load_targets input" in names[1]
    replicas = run(4, 'name = "1f1b"\nstages = 2')
    assert [row["loss"] for row in steps(replicas)] == pytest.approx([row["loss"] for row in steps(alone)], rel=1e-4)


def test_bf16_trains(quickstart):
    values = losses(quickstart(2, "--set", "train.dtype=bf16", "--set", f"train.steps={STEPS}")["gpt-micro"])
    assert has_learned(values), values


def test_an_emulated_link_is_named_in_the_results(strata, experiment, tmp_path):
    ended = strata(2, "run", experiment(), "--set", "communication.emulated_link.gbit_per_s=1")
    assert ended.code == 0, ended.error
    with h5py.File(next(tmp_path.glob("results/e2e/*/1.h5"))) as file:
        assert file.attrs["emulated_link_bytes_per_second"] == pytest.approx(1.25e8)
        assert "emulated_link" in file.attrs["transport"]
        # What the ranks measured through that link before training.
        assert 0.5 * 1.25e8 < file.attrs["all_reduce_bytes_per_second"] <= 1.25e8


def test_emulated_nodes_have_two_links_on_one_machine(strata, experiment, tmp_path):
    """Four ranks of one machine as two nodes: measured, planned and recorded as such."""
    nodes = ["resources.nodes=2", "resources.ranks_per_node=2", "strategy.name=autoddl"]
    links = ["gbit_per_s=0.5", "inside.alpha_us=5", "inside.gbit_per_s=40"]
    settings = [*nodes, *(f"communication.emulated_link.{link}" for link in links)]
    ended = strata(4, "run", experiment(), *(word for setting in settings for word in ("--set", setting)))
    assert ended.code == 0, ended.error
    (costs,) = tmp_path.glob("results/e2e/machine/*")
    machine = tomllib.loads(costs.read_text())
    # The machine is shared: transfers may take longer than the wires say, but never less.
    assert machine["inter_node"]["bandwidth_bytes_per_second"] < 2 * 1.3 * 0.5e9 / 8
    assert machine["intra_node"]["bandwidth_bytes_per_second"] > 1.3 * 0.5e9 / 8
    with h5py.File(next(tmp_path.glob("results/e2e/*/1.h5"))) as file:
        assert (file.attrs["num_nodes"], file.attrs["ranks_per_node"], file.attrs["num_ranks"]) == (2, 2, 4)
        assert file.attrs["emulated_link_bytes_per_second"] == pytest.approx(0.5e9 / 8)
        assert file.attrs["emulated_inside_alpha_seconds"] == pytest.approx(5e-6)
        assert file.attrs["emulated_inside_bytes_per_second"] == pytest.approx(40e9 / 8)
        assert "inside" in file.attrs["transport"]
    other = [setting.replace("gbit_per_s=40", "gbit_per_s=20") for setting in settings]
    ended = strata(4, "run", experiment(), *(word for setting in other for word in ("--set", setting)))
    assert ended.code == 0, ended.error
    assert len(list(tmp_path.glob("results/e2e/machine/*"))) == 2, "costs belong to the links they were measured with"


def test_a_loss_that_is_not_finite_is_no_success(strata, experiment, tmp_path):
    """Nor does it replace the checkpoints of before, and a point that is expected to diverge has not failed."""
    file = experiment(append="\n[checkpoint]\nevery = 1\nkeep = 1\n")
    diverging = ["--set", "train.learning_rate=1e30", "--set", "train.steps=100"]
    ended = strata(2, "run", file, *diverging)
    assert ended.code == 1, ended.error
    (message,) = ended.messages()
    assert message.startswith("strata: diverged: ")
    (point,) = tmp_path.glob("results/e2e/????????????")
    assert json.loads((point / "1.status.json").read_text())["status"] == "diverged"
    rows = [json.loads(line) for line in (point / "1.jsonl").read_text().splitlines()]
    assert sum(row["kind"] == "step" for row in rows) < 100
    for checkpoint in point.glob("checkpoints/*"):
        with h5py.File(checkpoint) as saved:
            for parameter in saved["parameters"].values():
                assert all(np.isfinite(state[:]).all() for state in parameter.values())
    file.write_text(file.read_text().replace("[data]", '[sweep.product]\n"train.seed" = [1, 2]\n\n[data]'))
    for expect, code in (([], 1), (["--set", 'expect=["diverged"]'], 0)):
        ended = strata(2, "run", file, *diverging, *expect)
        assert ended.code == code, ended.error


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("winograd", [True, False])
def test_results_say_by_what_convolutions_were_computed(strata, tmp_path, dtype, winograd):
    file = tmp_path / "convolutions.toml"
    file.write_text(
        'name = "convolutions"\nmodel.name = "vgg13-cifar"\ndata.format = "synthetic"\nstrategy.name = "single"\n'
        'train = { global_batch = 4, steps = 1 }\nmeasure = { warmup_steps = 0, min_steps = 1, peak = "quick" }\n'
    )
    chosen = {"train.dtype": dtype, "cpu.winograd": str(winograd).lower()}
    words = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    ended = strata(1, "run", file, *words, timeout=300)
    assert ended.code == 0, ended.error
    with h5py.File(next(tmp_path.glob("results/convolutions/*/1.h5"))) as results:
        # AMX makes direct sums in bf16 faster than any transforms.
        by_transforms = winograd and not (
            dtype == "bf16" and "instruction_set=amx" in results.attrs["library_versions"]
        )
        convolutions = "winograd and direct" if by_transforms else "direct"
        assert f"convolutions={convolutions}" in results.attrs["device_choices"]
