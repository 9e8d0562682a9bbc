"""Tables in which a person looks for the fastest."""

import pytest
from strata_analysis.cli import main
from strata_analysis.derive import by_point
from strata_analysis.load import load
from strata_analysis.table import METRICS, pivot, short_table


@pytest.mark.parametrize("metric", METRICS)
def test_a_pivot_has_every_series_ranks_in_order_and_how_failures_ended(sample, metric):
    points = by_point(load(sample))
    blocks = pivot(load(sample), metric).split("\n\n")
    assert len(blocks) == points["model_name"].nunique()
    for block, (model, members) in zip(blocks, points.groupby("model_name"), strict=True):
        title, head, *rows = block.split("\n")
        assert title.startswith(f"{model}: ")
        counts = [int(word) for word in head.split() if word.isdigit()]
        assert counts == sorted(set(members["num_ranks"]))
        assert len(rows) == members["series"].nunique()
        assert "nan" not in block
    assert "oom" in "".join(blocks)


def test_the_command_prints_it(sample, capsys):
    assert main(["table", str(sample), "--pivot", "ranks", "--metric", "step"]) == 0
    assert "ms a step" in capsys.readouterr().out


def test_a_reason_is_short_in_the_table_and_in_full_below(sample):
    lines = short_table(load(sample)).split("\n")
    reason = "OOM at block[3].mlp.fc1, needs 4.51 GiB of 4.00 GiB"
    [full] = [line for line in lines if reason in line]
    mark = full.split(" ", 1)[0]
    assert full == f"{mark} {reason}"
    assert sum(line.rstrip().endswith(f"oom {mark}") for line in lines) == 1
