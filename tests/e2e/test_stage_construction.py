"""Alpa's stages as a user gets them: unequal where those are the fastest, said so, and trained as one rank trains."""

import json
import tomllib

import pytest

CLUSTER = """
name = "here"
nodes = 1
devices_per_node = 4
device = "cpu"
memory_bandwidth_bytes_per_second = 8e9
intra_node = { latency_seconds = 1e-6, bandwidth_bytes_per_second = 4e9, effective_bandwidth_bytes_per_second = 4e9 }
inter_node = { latency_seconds = 0.0, bandwidth_bytes_per_second = 0.0 }

[peak_flops_per_second]
f32 = 200e9
"""
# A head of many words, whose product is quick for its FLOPs, behind blocks that memory's bandwidth slows down.
MODEL = {"model.layers": 7, "model.vocabulary": 4096, "train.global_batch": 32, "train.steps": 4}
ALPA = {"train.micro_batches": 8, "strategy.stages": 2, "strategy.tensor": "2x1"}


@pytest.fixture
def words(experiment, tmp_path):
    """words(strategy, ranks, **keys) of an experiment on the cluster above."""
    (tmp_path / "here.toml").write_text(CLUSTER)

    def words(strategy, ranks, keys):
        file = experiment(ranks=ranks, replace=[('name = "e2e"', 'name = "e2e"\ncluster = "here.toml"')])
        keys = {"strategy.name": strategy} | MODEL | keys
        return [file, *(word for key, value in keys.items() for word in ("--set", f"{key}={value}"))]

    return words


def plan_of(strata, words, construction):
    ended = strata(None, "plan", *words("alpa", 4, ALPA | {"strategy.stage_construction": construction}))
    assert ended.code == 0, ended.error
    return tomllib.loads(ended.output)


def losses(folder):
    (file,) = folder.glob("e2e/*/1.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows[-1]["status"] == "ok"
    return [row["loss"] for row in rows if row["kind"] == "step"]


def test_an_unequal_cut_is_taken_where_it_is_the_fastest(strata, words):
    plans = {word: plan_of(strata, words, word) for word in ("auto", "uniform", "cut_by")}
    seconds = {word: plan["why"]["predicted_seconds"] for word, plan in plans.items()}
    assert seconds["auto"] < min(seconds["uniform"], seconds["cut_by"])
    assert "2 stages by dynamic programming" in plans["auto"]["why"]["binding"]
    assert "2 stages of equally many blocks" in plans["uniform"]["why"]["binding"]
    assert plans["auto"]["stages"]["begins"] != plans["uniform"]["stages"]["begins"]


def test_it_trains_what_one_rank_trains(strata, words, tmp_path):
    for strategy, ranks, keys in (("single", 1, {}), ("alpa", 4, ALPA | {"strategy.stage_construction": "auto"})):
        ended = strata(ranks, "run", *words(strategy, ranks, keys), "--results", tmp_path / strategy)
        assert ended.code == 0, ended.error
    assert losses(tmp_path / "alpa") == pytest.approx(losses(tmp_path / "single"), rel=1e-5)


def test_what_the_program_cannot_cut_is_refused(strata, words):
    keys = ALPA | {"strategy.stage_construction": "auto", "strategy.stages": 4, "strategy.schedule": "interleaved"}
    ended = strata(None, "plan", *words("alpa", 4, keys))
    assert ended.code == 3
    assert 'stage_construction = "auto" with schedule = "interleaved", chunks = 2' in ended.messages()[0]
