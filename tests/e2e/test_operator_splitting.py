"""Operators in slices, by a plan written by hand: it trains what ddp trains, and its checkpoints are anybody's."""

import json

import pytest
from conftest import ROOT

SLICES = """
[[operators]]
match = "block[0..1].mlp.*"
state = { p = "2x1", g = "2x1", os = "2x1" }
[[operators]]
match = "block[1].mlp.fc1"
slices = 4
slice_state = ["zdp", "dp", "dp", "sdp"]
[[operators]]
match = "embedding"
slices = 3
slice_state = ["dp", "zdp", "zdp"]
[[operators]]
match = "head"
slices = 3
slice_state = ["dp", "zdp", "zdp"]
"""
CHECKPOINTS = "\n[checkpoint]\nevery = 3\nkeep = 0\n"


def losses_of(file):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows[-1]["status"] == "ok"
    return {row["step"]: row["loss"] for row in rows if row["kind"] == "step"}


def written_plan(strata, file, tmp_path, slices):
    plan = tmp_path / "slices.toml"
    plan.write_text(strata(None, "plan", file).output + slices)
    return plan


def test_a_plan_with_slices_trains_what_ddp_trains(strata, experiment, tmp_path):
    file = experiment()
    plan = written_plan(strata, file, tmp_path, SLICES)
    program = strata(None, "program", file, "--plan", plan).output
    for words in ("block[1].mlp.fc1/slice[3]", "embedding.table/slice[1]/gathered", "head/slice[2]"):
        assert words in program
    assert strata(2, "run", file, "--results", tmp_path / "whole").code == 0
    ended = strata(2, "run", file, "--plan", plan, "--results", tmp_path / "split")
    assert ended.code == 0, ended.error
    (whole,) = tmp_path.glob("whole/e2e/*/1.jsonl")
    (split,) = tmp_path.glob("split/e2e/*/1.jsonl")
    assert losses_of(split) == pytest.approx(losses_of(whole), rel=1e-5)
    (tmp_path / "clusters").symlink_to(ROOT / "experiments" / "clusters")
    ended = strata(None, "simulate", file, "--plan", plan, "--set", "cluster=a800-ib")
    assert ended.code == 0, ended.error


def test_checkpoints_of_slices_are_of_whole_parameters(strata, experiment, tmp_path):
    file = experiment(append=CHECKPOINTS)
    plan = written_plan(strata, file, tmp_path, SLICES)
    ways = {"split": ["--plan", plan], "whole": []}
    for name, words in ways.items():
        assert strata(2, "run", file, *words, "--results", tmp_path / name).code == 0
    for name, words in ways.items():
        other = "whole" if name == "split" else "split"
        (source,) = tmp_path.glob(f"{other}/e2e/*/checkpoints/step_6.h5")
        restart = ["--set", f"checkpoint.restart_from={source}", "--results", tmp_path / f"{name}-again"]
        ended = strata(2, "run", file, *words, *restart)
        assert ended.code == 0, ended.error
        (again,) = tmp_path.glob(f"{name}-again/e2e/*/1.jsonl")
        (straight,) = tmp_path.glob(f"{name}/e2e/*/1.jsonl")
        expected = {step: loss for step, loss in losses_of(straight).items() if step >= 6}
        assert losses_of(again) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('match = "block[0].attn.norm"\nslices = 2', "block[0].attn.norm: slices = 2 cannot be lowered"),
        ('match = "block[0].mlp.fc1"\nslices = 65', "its weight has 64 columns"),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(strata, experiment, tmp_path, rule, words):
    file = experiment()
    plan = written_plan(strata, file, tmp_path, f"\n[[operators]]\n{rule}\n")
    ended = strata(2, "run", file, "--plan", plan)
    assert ended.code == 3
    assert words in ended.messages()[0]


def test_a_tied_head_is_cut_as_its_embedding(strata, experiment, tmp_path):
    file = experiment()
    plan = written_plan(strata, file, tmp_path, '\n[[operators]]\nmatch = "head"\nslices = 2\n')
    ended = strata(2, "run", file, "--plan", plan)
    assert ended.code == 2
    assert "whose rules give it different slices" in ended.messages()[0]
