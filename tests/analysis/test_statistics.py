"""Medians with exact intervals."""

import math

import numpy as np
import pytest
import scipy.stats
from strata_analysis.statistics import fewest_pairs, holm, interval_ranks, median, num_outliers, rate, signed_rank


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


@pytest.mark.parametrize("num_pairs", [1, 3, 6, 10, 25])
def test_the_signed_rank_test_is_scipys_and_agrees_with_its_interval(num_pairs):
    generator = np.random.default_rng(num_pairs)
    for _ in range(50):
        found = signed_rank(generator.normal(0.4, 1.0, num_pairs), 0.95)
        assert (found.p_value <= 0.05) == (found.low > 0 or found.high < 0)
    differences = generator.normal(0.4, 1.0, num_pairs)
    expected = scipy.stats.wilcoxon(differences, method="exact").pvalue
    assert signed_rank(differences, 0.95).p_value == pytest.approx(expected)


def test_signed_rank_of_a_textbook():
    """Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, example 3.1: Hamilton depression scores."""
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    found = signed_rank(np.array(after) - before, 0.95)
    assert found.estimate == pytest.approx(-0.46)
    assert (found.low, found.high) == pytest.approx((-0.786, -0.010))
    assert found.p_value == pytest.approx(0.0390625)
    assert found.effect_size == pytest.approx(2 * 5 / 45 - 1)


def test_the_signed_rank_interval_covers_as_often_as_it_says():
    generator = np.random.default_rng(2)
    covered = sum(
        (found := signed_rank(generator.laplace(0.3, 1.0, 12), 0.95)).low <= 0.3 <= found.high for _ in range(2000)
    )
    assert covered >= 0.95 * 2000 - 3 * math.sqrt(2000 * 0.95 * 0.05)


def test_equal_runs_differ_in_nothing():
    found = signed_rank(np.zeros(10), 0.95)
    assert (found.estimate, found.low, found.high, found.p_value, found.effect_size) == (0.0, 0.0, 0.0, 1.0, 0.0)


@pytest.mark.parametrize(("confidence", "num_tests", "expected"), [(0.95, 1, 6), (0.99, 1, 8), (0.95, 24, 10)])
def test_fewest_pairs_that_can_decide(confidence, num_tests, expected):
    assert fewest_pairs(confidence, num_tests) == expected
    level = (1 - confidence) / num_tests
    assert signed_rank(np.ones(expected), confidence).p_value <= level
    assert signed_rank(np.ones(expected - 1), confidence).p_value > level


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert len(holm([])) == 0


def test_ranks_of_many_values_are_those_of_the_binomial_distribution():
    low, high = interval_ranks(20_001, 0.99)
    assert (low, high) == (int(scipy.stats.binom.ppf(0.005, 20_001, 0.5)), 20_002 - low)
