"""AutoDDL's figure 8: how near to the optimum each search is after how many strategies, over seeds."""

from __future__ import annotations

import tomllib

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.derive import key_column
from strata_analysis.figures import style
from strata_analysis.load import Results
from strata_analysis.statistics import median

EXPERIMENT = "autoddl_figure_8"
CONFIDENCE = 0.9  # of the paper's shaded areas
COLOURS = {"random": "#0072B2", "metropolis_hastings": "#E69F00", "coordinate_descent": "#54278F"}


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `search/<nodes>/<search>` on lines of the median cost over the optimum."""
    rows = traces(points)
    if rows.empty:
        return "no search with a trace beside an exact one"
    nodes = sorted(set(rows["nodes"]))
    figure, all_axes = pyplot.subplots(
        1, len(nodes), figsize=(style.COLUMN_INCHES * min(2, len(nodes)), style.HEIGHT_INCHES), squeeze=False
    )
    for axes, count in zip(all_axes[0], nodes, strict=True):
        for search, of_search in rows[rows["nodes"] == count].groupby("search", sort=False):
            curve = over_seeds(of_search)
            axes.plot(curve["evaluations"], curve["median"], color=COLOURS[search], gid=f"search/{count}/{search}")
            axes.fill_between(
                curve["evaluations"], curve["low"], curve["high"], color=COLOURS[search], alpha=0.25, linewidth=0
            )
        axes.set_xscale("log")
        axes.set_title(f"{count} nodes", fontsize=7)
        axes.set_xlabel("strategies looked at")
        axes.set_ylim(0.95, 3.0)
    all_axes[0][0].set_ylabel("cost over the optimum")
    figure.suptitle("AutoDDL figure 8: searches, median and 90 % interval over seeds", fontsize=8)
    handles = [pyplot.Line2D([], [], color=COLOURS[name], label=name.replace("_", " ")) for name in COLOURS]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return {"searches": figure}


def traces(points: pd.DataFrame) -> pd.DataFrame:
    """A row a strategy that was the best so far: nodes, search, seed, evaluations, over_optimum.

    The optimum is what the exact search of as many nodes predicts; without one there is nothing to compare with.
    """
    ours = points[(points["experiment_name"] == EXPERIMENT) & (points["plan_text"].fillna("") != "")]
    nodes = [int(word) for word in key_column(ours, "resources.nodes", "1")]
    searches = key_column(ours, "strategy.search", "exact")
    seeds = [int(word) for word in key_column(ours, "strategy.seed", "1")]
    whys = [tomllib.loads(text).get("why", {}) for text in ours["plan_text"]]
    said = list(zip(nodes, searches, seeds, whys, strict=True))
    optimum = {count: why["predicted_seconds"] for count, search, _, why in said if search == "exact"}
    found = []
    for count, search, seed, why in said:
        if count not in optimum or search not in COLOURS:
            continue
        for line in why.get("trace", ()):
            evaluations, cost = line.split()
            found.append((count, search, seed, int(evaluations), float(cost) / optimum[count]))
    return pd.DataFrame(found, columns=["nodes", "search", "seed", "evaluations", "over_optimum"])


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Of one search: evaluations, and median, low and high of what its seeds had found by then."""
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
