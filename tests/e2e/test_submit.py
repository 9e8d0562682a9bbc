"""A sweep is planned before it is queued: what cannot start is named, left out and counted; what can has its hours."""

import re

import pytest

# Of four points one does not fit, one has no plan: four ranks are no three stages.
SWEEP = """
name = "planned"
cluster = "testbed-200mbit"

[model]
name = "gpt-nano"

[data]
format = "synthetic"

[resources]
nodes = 2
ranks_per_node = 2

[train]
global_batch = 8
steps = 100

[job]
time_limit_minutes = 1

[[sweep.zip]]
strategy = [{ name = "ddp" }, { name = "ddp" }, { name = "zero3" }, { name = "gpipe", stages = 3 }]
"resources.memory_gib" = [0, 0.001, 0, 0]
"""


@pytest.fixture
def submit(strata, tmp_path):
    (tmp_path / "planned.toml").write_text(SWEEP)
    return lambda *words: strata(None, "submit", "planned.toml", "--site", "slurm", *words)


def test_what_cannot_start_is_named_left_out_and_counted(submit, strata):
    ended = submit("--dry-run")
    assert ended.code == 0, ended.error
    said = ended.output.splitlines()
    assert said[0] == "2 of 4 points cannot start and are left out (--all queues them too):"
    assert re.fullmatch(r"oom          1  .*of 0\.001 GiB.*, point [0-9a-f]{12}", said[1]), said[1]
    assert re.fullmatch(r"refused      1  .*stages.*, point [0-9a-f]{12}", said[2]), said[2]
    assert "1 arrays, 2 launches" in ended.output
    assert re.search(r"predicted: steps take 0\.\d\d node-hours at most", ended.output), ended.output
    assert "planned where they start" not in ended.output

    assert submit("--emit").code == 0
    ended = strata(None, "status", "results/planned")
    assert ended.code == 0, ended.error
    assert ended.output.startswith("planned: 4 points: 1 left out (oom), 1 left out (refused), 2 missing\n")
    assert said[1][5:].strip() in ended.output


def test_all_points_are_queued_where_that_is_asked_for(submit):
    for words in (["--all"], ["--no-plan"], ["--set", 'expect=["oom", "refused"]']):
        ended = submit("--dry-run", *words)
        assert ended.code == 0, ended.error
        assert "left out" not in ended.output
        assert "1 arrays, 4 launches" in ended.output
        assert ("predicted" in ended.output) == (words != ["--no-plan"])
    assert submit("--all", "--no-plan").code == 2


def test_nothing_is_submitted_where_no_point_is_left(submit, tmp_path):
    ended = submit("--point", 1)
    assert ended.code == 3
    assert ended.output.startswith("1 of 1 points cannot start")
    assert ended.output.endswith("no point is left: nothing is submitted\n")
    assert not (tmp_path / "results").exists()


def test_a_time_limit_that_is_too_short_is_said(submit):
    ended = submit("--dry-run", "--set", "train.steps=1000000")
    assert ended.code == 0, ended.error
    assert re.search(
        r"2 of 2 tasks are predicted to exceed their time limit, by as much as [\d.]+ h beyond 1 min", ended.output
    )


def test_costs_that_only_the_nodes_know_refuse_nothing(submit, tmp_path):
    file = tmp_path / "planned.toml"
    file.write_text(SWEEP[: SWEEP.index("[[sweep")] + '[strategy]\nname = "megatron"\n')
    ended = submit("--dry-run", "--set", "cluster=this")
    assert ended.code == 0, ended.error
    assert ended.output.startswith(
        "1 of 1 points are planned where they start:\nat start      1  megatron on 4 ranks: "
    )
    assert "predicted: nothing, the nodes' costs are unknown here" in ended.output


@pytest.mark.parametrize("exponent", [36, 40, 62])
def test_a_batch_beyond_what_can_be_counted_is_refused(submit, exponent):
    ended = submit("--dry-run", "--set", "cluster=this", "--set", f"train.global_batch={2**exponent}")
    if exponent == 36:
        assert ended.code in (0, 3), ended.error
        assert "a size above 2147483647" in ended.output
    else:
        assert ended.code == 2
        assert f"train.global_batch: {2**exponent} samples a step" in ended.error
        assert ended.error.count("\n") == 1
