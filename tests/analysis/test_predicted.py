"""Predictions against measurements."""

import math

import pandas as pd
import pytest
from strata_analysis.cli import main
from strata_analysis.load import load
from strata_analysis.predicted import errors, report, spearman


def test_errors_are_relative_and_of_measured_points_alone(sample):
    results = load(sample)
    rows = errors(results)
    simulated = results.points.loc[results.points["simulated"].astype(bool), "point"]
    assert len(rows)
    assert not set(rows["point"]) & set(simulated)
    assert rows["error"].to_numpy() == pytest.approx(-0.05)  # as write_sample_results.cpp makes them


def test_report_names_points_errors_and_sources(sample):
    text = report(load(sample))
    assert "step: predicted against measured" in text
    assert "median error 5.0 %, mean 5.0 %, largest 5.0 %, Spearman 1.000" in text
    assert "# simulator" in text


def test_nothing_to_compare_is_said(sample):
    results = load(sample)
    results.predictions = results.predictions.iloc[:0]
    assert "no run of these results" in report(results)


def test_rank_correlation():
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
    assert math.isnan(spearman([1, 2], [1, 2]))
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


def test_operators_and_collectives_have_their_own_tables(sample):
    results = load(sample)
    more = results.predictions.assign(metric="kernel.linear_forward_seconds")
    more = pd.concat([results.predictions, more, results.predictions.assign(metric="collective.all_reduce_seconds")])
    results.predictions = more
    text = report(results)
    assert "operators: predicted against measured" in text
    assert "linear_forward" in text
    assert "collectives: predicted against measured" in text


def test_the_verb_compares_predictions_alone(sample, capsys):
    assert main(["compare", str(sample), "--predicted"]) == 0
    assert "step time over" in capsys.readouterr().out
    assert main(["compare", str(sample), "--predicted", "--baseline", "ddp"]) == 2
    assert "--predicted stands alone" in capsys.readouterr().err
