"""OSDP's plans as a user gets them: in a memory too small for replicas they run, fit, and train what ddp trains."""

import json
import tomllib

import pytest

CLUSTER = """
name = "here"
nodes = 1
devices_per_node = 4
device = "cpu"
memory_bandwidth_bytes_per_second = 8e9
intra_node = { latency_seconds = 1e-8, bandwidth_bytes_per_second = 1e9, effective_bandwidth_bytes_per_second = 1e9 }
inter_node = { latency_seconds = 0.0, bandwidth_bytes_per_second = 0.0 }

[peak_flops_per_second]
f32 = 200e9
"""
GIB = 2**30


def rows_of(folder):
    (file,) = folder.glob("e2e/*/1.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows[-1]["status"] == "ok"
    return rows


def column(rows, name):
    return [row[name] for row in rows if row["kind"] == "step"]


@pytest.fixture
def run(strata, experiment, tmp_path):
    """run(ranks, strategy, **keys) trains and returns the rows; `.attempt` may fail, `.plan` prints the plan."""
    (tmp_path / "here.toml").write_text(CLUSTER)

    def words_of(ranks, strategy, keys):
        file = experiment(ranks=ranks, replace=[('name = "e2e"', 'name = "e2e"\ncluster = "here.toml"')])
        keys = {"strategy.name": strategy, "overlap.bucket_mib": 0.02} | keys
        return [file, *(word for key, value in keys.items() for word in ("--set", f"{key}={value}"))]

    def attempt(ranks, strategy, **keys):
        folder = tmp_path / f"{strategy}-{len(list(tmp_path.iterdir()))}"
        return strata(ranks, "run", *words_of(ranks, strategy, keys), "--results", folder), folder

    def run(ranks, strategy, **keys):
        ended, folder = attempt(ranks, strategy, **keys)
        assert ended.code == 0, ended.error
        return rows_of(folder)

    def plan(ranks, strategy, **keys):
        ended = strata(None, "plan", *words_of(ranks, strategy, keys))
        assert ended.code == 0, ended.error
        return tomllib.loads(ended.output)

    run.attempt = attempt
    run.plan = plan
    return run


def capacity_between(run, ranks, share, keys):
    """GiB: `share` of the way from what ZeRO-3 needs to what replicas need."""
    least, most = (max(column(run(ranks, strategy, **keys), "arena_peak_bytes")) for strategy in ("zero3", "ddp"))
    assert least < most
    return (least + share * (most - least)) / GIB


def slice_states(plan):
    return [rule["slice_state"] for rule in plan["operators"] if "slice_state" in rule]


def test_a_plan_with_slices_trains_what_ddp_trains(run):
    ranks, keys = 4, {"train.recompute": "block"}
    # A little less than ZeRO-3 needs: no plan without slices fits.
    capacity = capacity_between(run, ranks, -0.002, keys)
    plan = run.plan(ranks, "osdp", **keys, **{"resources.memory_gib": capacity})
    assert any("zdp" in states for states in slice_states(plan)), plan["operators"]
    ours = run(ranks, "osdp", **keys, **{"resources.memory_gib": capacity})
    peak = max(column(ours, "arena_peak_bytes"))
    assert peak == plan["why"]["predicted_peak_bytes"] <= capacity * GIB
    theirs = run(ranks, "ddp", **keys)
    assert peak < max(column(theirs, "arena_peak_bytes"))
    assert column(ours, "loss") == pytest.approx(column(theirs, "loss"), rel=1e-5)


def test_a_batch_of_the_planners_trains_what_ddp_trains_with_it(run):
    keys = {"train.global_batch": "planner", "resources.memory_gib": 12 / 1024}
    plan = run.plan(2, "osdp", **keys)
    batch = plan["batch"]["global"]
    assert batch % 2 == 0
    assert f"b = {batch // 2}: " in "\n".join(plan["why"]["frontier"])
    ours = run(2, "osdp", **keys)
    assert ours[0]["num_sequences_per_step"] == batch
    assert max(column(ours, "arena_peak_bytes")) == plan["why"]["predicted_peak_bytes"] <= 12 * 2**20
    theirs = run(2, "ddp", **{"train.global_batch": batch})
    assert column(ours, "loss") == pytest.approx(column(theirs, "loss"), rel=1e-5)


def test_where_no_plan_fits_the_run_is_oom(run):
    ended, folder = run.attempt(2, "osdp", **{"resources.memory_gib": 1 / 1024})
    assert ended.code == 3
    assert "oom: osdp on 2 ranks: nothing fits into a device memory of 0.0010 GiB (1048576 bytes)" in ended.error
    (status,) = folder.glob("e2e/*/*.status.json")
    assert json.loads(status.read_text())["status"] == "oom"


def test_a_batch_of_the_planners_is_refused_where_the_strategy_chooses_none(strata, experiment):
    ended = strata(None, "plan", experiment(), "--set", "train.global_batch=planner")
    assert ended.code == 2
    assert "strategy ddp does not choose it" in ended.messages()[0]


def test_stages_hold_their_states_as_osdp_decides(run):
    """Two stages of two data ranks, each under its own memory."""
    keys = {"train.micro_batches": 3, "strategy.stages": 2}
    replicated = run(4, "3d", **keys, **{"strategy.tensor": 1})
    most = max(column(replicated, "arena_peak_bytes"))
    plan = run.plan(4, "3d+osdp", **keys, **{"resources.memory_gib": 0.9 * most / GIB})
    assert plan["mesh"]["axes"] == {"stage": 2, "data": 2}
    whole = [rule["state"]["p"] for rule in plan["operators"] if "state" in rule]
    assert "2x1" in whole or any("zdp" in states for states in slice_states(plan)), plan["operators"]
    ours = run(4, "3d+osdp", **keys, **{"resources.memory_gib": 0.9 * most / GIB})
    assert max(column(ours, "arena_peak_bytes")) == plan["why"]["predicted_peak_bytes"] <= 0.9 * most
    alone = run(1, "single", **{"train.micro_batches": 3})
    for rows in (ours, replicated):
        assert column(rows, "loss") == pytest.approx(column(alone, "loss"), rel=1e-4)
