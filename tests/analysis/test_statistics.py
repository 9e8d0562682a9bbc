"""Medians with exact intervals."""

import math

import numpy as np
import pytest
from strata_analysis.statistics import interval_ranks, median, num_outliers, rate


@pytest.mark.parametrize(
    ("num_values", "confidence", "ranks"),
    [(5, 0.95, None), (6, 0.95, (1, 6)), (7, 0.99, None), (8, 0.99, (1, 8)), (20, 0.95, (6, 15)), (30, 0.99, (8, 23))],
)
def test_ranks_are_those_of_the_binomial_tables(num_values, confidence, ranks):
    assert interval_ranks(num_values, confidence) == ranks


def test_the_interval_covers_the_median_as_often_as_it_says():
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        found = median(generator.exponential(size=25), 0.95)
        covered += found.low <= math.log(2) <= found.high
    assert covered >= 0.95 * 2000 - 3 * math.sqrt(2000 * 0.95 * 0.05)


def test_too_few_values_have_no_interval():
    few = median([3.0, 1.0, 2.0])
    assert few.value == 2.0
    assert math.isnan(few.low)


def test_a_rate_turns_the_interval_round():
    seconds = median(np.arange(1.0, 10.0))
    tokens = rate(100.0, seconds)
    assert tokens.value == 20.0
    assert (tokens.low, tokens.high) == (100.0 / seconds.high, 100.0 / seconds.low)


def test_outliers_are_counted():
    assert num_outliers([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 9.0]) == 1
