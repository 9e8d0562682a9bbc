"""How near to the optimum searches over layouts come after how many strategies and seconds, from plans with a trace.

Plans say after how many strategies, which is the same wherever they are made; layout_searches.toml has how many a
second each search looked at on one processor. What all searches need before they begin is not in these seconds.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pandas as pd

from strata_analysis.derive import key_column
from strata_analysis.statistics import median

CONFIDENCE = 0.9  # of the shaded areas of AutoDDL's figure 8
NAMES = {
    "exhaustive": "exhaustive",
    "random": "random",
    "metropolis_hastings": "Metropolis-Hastings",
    "coordinate_descent": "coordinate descent",
}
RATES = Path(__file__).with_suffix(".toml")  # by experiments/autoddl/figure_8_rates.py


@cache
def rates() -> dict:
    """processor, and by search strategies_per_second."""
    return tomllib.loads(RATES.read_text(encoding="utf-8"))


def traces(points: pd.DataFrame) -> pd.DataFrame:
    """A row a strategy that was the best so far: nodes, search, seed, evaluations, over_optimum.

    The optimum is what the exact search of as many nodes predicts; without one there is nothing to compare with.
    """
    ours = points[points["plan_text"].fillna("") != ""]
    nodes = [int(word) for word in key_column(ours, "resources.nodes", "1")]
    searches = key_column(ours, "strategy.search", "exact")
    seeds = [int(word) for word in key_column(ours, "strategy.seed", "1")]
    whys = [tomllib.loads(text).get("why", {}) for text in ours["plan_text"]]
    said = list(zip(nodes, searches, seeds, whys, strict=True))
    optimum = {count: why["predicted_seconds"] for count, search, _, why in said if search == "exact"}
    found = []
    for count, search, seed, why in said:
        if count not in optimum or search not in NAMES:
            continue
        for line in why.get("trace", ()):
            evaluations, cost = line.split()
            found.append((count, search, seed, int(evaluations), float(cost) / optimum[count]))
    return pd.DataFrame(found, columns=["nodes", "search", "seed", "evaluations", "over_optimum"])


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Of one search: evaluations, and median, low and high of what its seeds had found by then.

    Exhaustive search has no seeds, and so no interval.
    """
    by_seed = rows.pivot_table(index="evaluations", columns="seed", values="over_optimum", aggfunc="min")
    by_seed = by_seed.sort_index().ffill().dropna()
    found = [median(line, CONFIDENCE) for _, line in by_seed.iterrows()]
    return pd.DataFrame(
        {
            "evaluations": by_seed.index,
            "median": [of_line.value for of_line in found],
            "low": [of_line.low for of_line in found],
            "high": [of_line.high for of_line in found],
        }
    )
