"""What was evaluated: the last of each point, and the best of the last epochs."""

import pandas as pd
import pytest
from strata_analysis.evaluated import by_point, table
from strata_analysis.load import INDEX, load
from strata_analysis.report.content import content_of


@pytest.fixture
def evaluated(sample):
    results = load(sample)
    last = results.last().iloc[0]
    rows = [
        {**last[INDEX], "trained_steps": 10 * epoch, "epoch": float(epoch), "num_samples": 360, "loss": 2.0 / epoch}
        | {"top_1": top_1, "top_5": 0.5 + top_1 / 2.0}
        for epoch, top_1 in [(2, 0.99), (4, 0.5), (13, 0.7), (14, 0.6)]
    ]
    results.evaluations = pd.DataFrame(rows[::-1])
    return results


def test_the_best_is_of_the_last_ten_epochs_alone(evaluated):
    (row,) = by_point(evaluated).to_dict("records")
    assert (row["epoch"], row["trained_steps"], row["top_1"]) == (14.0, 140, 0.6)
    assert row["best_top_1"] == 0.7, "epoch 4 is ten epochs before the last, epoch 2 before that"
    assert by_point(evaluated, last_epochs=100.0)["best_top_1"].iloc[0] == 0.99


def test_a_report_shows_what_was_evaluated_and_nothing_where_nothing_was(sample, evaluated):
    assert content_of(evaluated, sample)["evaluations"][0]["top-1, %"] == "60.00"
    assert table(load(sample)).empty
    assert content_of(load(sample), sample)["evaluations"] == []
