"""Summaries as Hoefler and Belli (SC'15) ask: medians with exact intervals, ratios of summaries, never the reverse."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.99


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


def interval_ranks(num_values: int, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """1-based ranks (l, u) of the sorted values between which the median lies with at least `confidence`.

    Exact: the number of values below the median is binomial(n, 1/2), so ranks k and n + 1 - k cover it with
    probability 1 - 2 P(X <= k - 1). The narrowest such pair is returned. None if even the extremes do not suffice:
    n < 6 for 95 %, n < 8 for 99 %. Makes no assumption about the distribution, but takes the values as independent.
    """
    tail = 0.0
    best = None
    for k in range(1, num_values // 2 + 1):
        tail += math.comb(num_values, k - 1) / 2**num_values
        if 1.0 - 2.0 * tail < confidence:
            break
        best = (k, num_values + 1 - k)
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
