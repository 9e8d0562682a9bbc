"""Who is fastest at each place: strategies by their step time, with their ratio to the best one."""

from __future__ import annotations

import math

import pandas as pd

from strata_analysis.answer import place_words, places_of
from strata_analysis.compare import INCOMPARABLE, Comparison, Pair
from strata_analysis.peaks import share_in_words
from strata_analysis.table import with_filled_columns

NOTE = (
    "The first of a place is the one whose median step was the shortest; ratio: step time over that one's, with its "
    "interval. Where the verdict is undecided, the two may as well change places."
)


def ranking(comparison: Comparison, points: pd.DataFrame) -> list[dict[str, str]]:
    """Rows of text, one a strategy at each place, the fastest first.

    `comparison` is of `compare_with_best`, `points` the rows of `by_point`.
    """
    facts = points.set_index("point")
    rows = []
    for pairs in places_of(comparison.pairs):
        where = place_words(pairs[0], comparison.pairs).removeprefix("of ").removeprefix("on ")
        best = facts.loc[pairs[0].baseline_point]
        rows.append(_row(where, "1", pairs[0].baseline, pairs[0].baseline_seconds, best) | {"ratio": "1"})
        for number, pair in enumerate(sorted(pairs, key=_seconds), 2):
            place = "" if math.isnan(pair.candidate_seconds) else str(number)
            point = facts.loc[pair.candidate_point]
            row = _row(where, place, pair.candidate, pair.candidate_seconds, point)
            rows.append(row | {"ratio": _ratio(pair), "verdict": _verdict(pair, facts)})
    return with_filled_columns(rows)


def _seconds(pair: Pair) -> float:
    return math.inf if math.isnan(pair.candidate_seconds) else pair.candidate_seconds


def _row(where: str, number: str, name: str, seconds: float, point: pd.Series) -> dict[str, str]:
    has_ended = not math.isnan(seconds)
    return {
        "where": where,
        "place": number,
        "strategy": name,
        "step ms": f"{1e3 * seconds:.1f}" if has_ended else "",
        "ratio": "",
        "verdict": "",
        "MFU": share_in_words(point["mfu"]) if has_ended else "",
        "peak memory MiB": f"{point['arena_peak_bytes'] / 2**20:.1f}" if has_ended else "",
    }


def _ratio(pair: Pair) -> str:
    if math.isnan(pair.ratio):
        return ""
    has_interval = pair.paired_by != "exact" and not math.isnan(pair.ratio_low)
    return f"{pair.ratio:.3f}" + (f" [{pair.ratio_low:.3f}, {pair.ratio_high:.3f}]" if has_interval else "")


def _verdict(pair: Pair, facts: pd.DataFrame) -> str:
    status = facts.loc[pair.candidate_point, "status"]
    return status if pair.verdict == INCOMPARABLE and status != "ok" else pair.verdict
