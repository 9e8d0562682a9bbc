"""Summaries as Hoefler and Belli (SC'15) ask: medians with exact intervals, ratios of summaries, never the reverse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from strata_analysis.confidence import OF_MEDIANS as CONFIDENCE


@dataclass(frozen=True)
class Median:
    """The median of `num_values` values. `low` and `high` are NaN where there are too few for the confidence."""

    value: float
    low: float
    high: float
    num_values: int
    confidence: float

    @property
    def relative_half_width(self) -> float:
        return 0.5 * (self.high - self.low) / self.value


@cache  # the columns of a table are of one length
def interval_ranks(num_values: int, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """1-based ranks (l, u) of the sorted values between which the median lies with at least `confidence`.

    Exact: the number of values below the median is binomial(n, 1/2), so ranks k and n + 1 - k cover it with
    probability 1 - 2 P(X <= k - 1). The narrowest such pair is returned. None if even the extremes do not suffice:
    n < 6 for 95 %, n < 8 for 99 %. Makes no assumption about the distribution, but takes the values as independent.
    """
    subsets = 2**num_values
    subsets_of_size = 1  # k - 1 of all values
    tail = 1
    best = None
    for k in range(1, num_values // 2 + 1):
        if 1.0 - 2.0 * (tail / subsets) < confidence:
            break
        best = (k, num_values + 1 - k)
        subsets_of_size = subsets_of_size * (num_values + 1 - k) // k
        tail += subsets_of_size
    return best


def median(values, confidence: float = CONFIDENCE) -> Median:
    """The median with its interval. NaN values are not counted."""
    values = np.sort(np.asarray(values, dtype=float))
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return Median(math.nan, math.nan, math.nan, 0, confidence)
    ranks = interval_ranks(len(values), confidence)
    low, high = (values[ranks[0] - 1], values[ranks[1] - 1]) if ranks else (math.nan, math.nan)
    return Median(float(np.median(values)), float(low), float(high), len(values), confidence)


def rate(work: float, seconds: Median) -> Median:
    """`work` divided by the median of `seconds`: the work of every step is the same, so the rate of the median step.
    The interval's ends change places."""
    if seconds.num_values == 0 or seconds.value == 0.0:
        return Median(math.nan, math.nan, math.nan, seconds.num_values, seconds.confidence)
    return Median(work / seconds.value, work / seconds.high, work / seconds.low, seconds.num_values, seconds.confidence)


def num_outliers(values) -> int:
    """Values outside Tukey's fences (1.5 interquartile ranges). They are counted and never removed."""
    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return 0
    first, third = np.percentile(values, [25, 75])
    fence = 1.5 * (third - first)
    return int(np.count_nonzero((values < first - fence) | (values > third + fence)))


@dataclass(frozen=True)
class SignedRank:
    """Differences of pairs, tested against a distribution that is symmetric about zero.

    estimate: Hodges and Lehmann's: the median of the means of all pairs of differences. low, high: its exact interval,
    NaN where there are too few differences for the confidence. p_value: two-sided, at most 1 - confidence exactly when
    the interval leaves zero out. effect_size: matched-pairs rank-biserial correlation (Kerby 2014), the part of the
    ranks that speaks for positive differences minus the rest: -1 to 1, 0 for no tendency.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    effect_size: float
    num_pairs: int


def signed_rank(differences, confidence: float) -> SignedRank:
    """Wilcoxon's signed-rank test with the interval that belongs to it; exact at any number of pairs.

    The rank sum equals the number of positive Walsh averages, (d_i + d_j) / 2 for i <= j, so estimate, interval and
    p-value come from one sorted list. An average of exactly zero counts half for each side.
    """
    d = np.asarray(differences, dtype=float)
    if len(d) == 0:
        return SignedRank(math.nan, math.nan, math.nan, math.nan, math.nan, 0)
    first, second = np.triu_indices(len(d))
    walsh = np.sort(0.5 * (d[first] + d[second]))
    num_walsh = len(walsh)
    positive = float(np.count_nonzero(walsh > 0) + 0.5 * np.count_nonzero(walsh == 0))
    # at_most[k]: probability that at most k Walsh averages are positive.
    at_most = np.cumsum(_rank_sum_distribution(len(d)))
    smaller = math.ceil(min(positive, num_walsh - positive))
    p_value = min(1.0, 2.0 * float(at_most[smaller]))
    num_outside = int(np.searchsorted(at_most, 0.5 * (1.0 - confidence), side="right"))
    low, high = (walsh[num_outside - 1], walsh[num_walsh - num_outside]) if num_outside else (math.nan, math.nan)
    return SignedRank(
        float(np.median(walsh)), float(low), float(high), p_value, 2.0 * positive / num_walsh - 1.0, len(d)
    )


def _rank_sum_distribution(num_pairs: int) -> np.ndarray:
    """Probability of each sum of ranks 0 ... n(n+1)/2 if every rank counts or not by a fair coin."""
    probability = np.ones(1)
    for rank in range(1, num_pairs + 1):
        probability = 0.5 * (np.pad(probability, (0, rank)) + np.pad(probability, (rank, 0)))
    return probability


def fewest_pairs(confidence: float, num_tests: int = 1) -> int:
    """Pairs below which no outcome of `signed_rank` could be significant beside num_tests - 1 other tests."""
    return math.ceil(1 + math.log2(num_tests / (1.0 - confidence)) - 1e-9)


def holm(p_values) -> np.ndarray:
    """p-values corrected for their number (Holm 1979): bounds the chance of even one false claim among all."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(corrected, 1.0)
    return result
