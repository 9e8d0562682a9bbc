"""One peak for one machine. Each launch measures what its ranks' best product reaches; on a shared machine these differ
by a factor of two, and with them the MFU of equal runs. What a machine can do is the best that any launch saw of it, so
MFU is of that; a launch that saw less than most of it was disturbed, and is marked.
"""

from __future__ import annotations

import math

import pandas as pd

ABOVE_PEAK = "(> peak)"
# Launches that agree in these measured the same thing.
SAME_MACHINE = ["backend", "dtype", "threads_per_rank", "ranks_per_node", "peak_source"]
DISTURBED_BELOW = 0.9  # of the best


def with_best_peaks(points: pd.DataFrame) -> pd.DataFrame:
    """`points`, a row an attempt, with best_peak_flops_per_second, the largest peak_flops_per_second of all attempts on
    the same devices, and disturbed: whether the attempt's own is more than a tenth below it. Simulated attempts keep
    the peak of their cluster's description, and nothing disturbs them.
    """
    devices = points["device_names"].map(lambda names: tuple(sorted(set(names))))
    own = points["peak_flops_per_second"]
    measured = ~points["simulated"].astype(bool)
    best = own.groupby([devices, measured, *(points[name] for name in SAME_MACHINE)], dropna=False).transform("max")
    best = best.where(measured, own)
    return points.assign(best_peak_flops_per_second=best, disturbed=own < DISTURBED_BELOW * best)


def in_words(points: pd.DataFrame) -> list[str]:
    """A line for each peak that the MFU of these points is of: its value beside the sustained rate and the nameplate,
    what launches saw of it, how it was found.
    """
    lines = []
    for (source, best), members in points.groupby(["peak_source", "best_peak_flops_per_second"]):
        own = members["peak_flops_per_second"]
        seen = f" (launches saw {_giga(own.min())} to {_giga(own.max())})" if own.min() < own.max() else ""
        lines.append(f"{_giga(best)} GFLOP/s a rank{_sustained(members)}{seen}, {source}")
    return lines


def share_in_words(share: float) -> str:
    """An MFU as text, empty where it is unknown. Above one it is marked: nothing is faster than it can be, so the peak
    was measured while the machine was disturbed.
    """
    if math.isnan(share):
        return ""
    return f"{100 * share:.1f} %" + (f" {ABOVE_PEAK}" if share > 1 else "")


def _sustained(members: pd.DataFrame) -> str:
    """Beside the best rate: what its products made all together, and what the data sheet says."""
    words = [
        f"{word} {_giga(members[name].max())}"
        for word, name in (("sustained", "sustained_flops_per_second"), ("nameplate", "nameplate_flops_per_second"))
        if members[name].notna().any()
    ]
    return f" ({', '.join(words)})" if words else ""


def _giga(flops: float) -> str:
    return f"{flops / 1e9:.0f}"
