"""AutoDDL's figure 8: how near to the optimum each search is after how long, over seeds."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures import style
from strata_analysis.layout_searches import NAMES, over_seeds, rates, traces
from strata_analysis.load import Results

EXPERIMENT = "autoddl_figure_8"
COLOURS = {
    "exhaustive": "0.3",
    "random": "#0072B2",
    "metropolis_hastings": "#E69F00",
    "coordinate_descent": "#54278F",
}


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `search/<nodes>/<search>` on lines of the median cost over the optimum."""
    rows = traces(points[points["experiment_name"] == EXPERIMENT])
    measured = rates()
    if rows.empty:
        return "no search with a trace beside an exact one"
    nodes = sorted(set(rows["nodes"]))
    figure, all_axes = pyplot.subplots(
        1, len(nodes), figsize=(style.COLUMN_INCHES * min(2, len(nodes)), style.HEIGHT_INCHES), squeeze=False
    )
    for axes, count in zip(all_axes[0], nodes, strict=True):
        for search, of_search in rows[rows["nodes"] == count].groupby("search", sort=False):
            curve = over_seeds(of_search)
            seconds = curve["evaluations"] / measured["strategies_per_second"][search]
            axes.plot(seconds, curve["median"], color=COLOURS[search], gid=f"search/{count}/{search}")
            axes.fill_between(seconds, curve["low"], curve["high"], color=COLOURS[search], alpha=0.25, linewidth=0)
        axes.set_xscale("log")
        axes.set_title(f"{count} nodes", fontsize=7)
        axes.set_xlabel("seconds")
        axes.set_ylim(0.95, 3.0)
    all_axes[0][0].set_ylabel("cost over the optimum")
    title = f"AutoDDL figure 8: searches, median and 90 % interval over seeds; one core, {measured['processor']}"
    figure.suptitle(title, fontsize=8)
    handles = [
        pyplot.Line2D([], [], color=COLOURS[name], label=f"{NAMES[name]}, {rate / 1e6:.0f} strategies a µs")
        for name, rate in measured["strategies_per_second"].items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return {"searches": figure}
