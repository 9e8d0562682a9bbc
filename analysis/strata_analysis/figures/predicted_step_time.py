"""Predicted against measured step time: a point on the diagonal was predicted exactly."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from strata_analysis.figures import style
from strata_analysis.load import Results
from strata_analysis.predicted import STEP, errors


def draw(results: Results, _points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `predicted/<strategy>`, `exact`."""
    rows = errors(results)
    rows = rows[rows["metric"] == STEP]
    figures = {}
    for model, members in rows.groupby("model_name"):
        figure, axes = pyplot.subplots()
        for number, (strategy, here) in enumerate(members.groupby("strategy_name")):
            axes.plot(
                1e3 * here["measured"],
                1e3 * here["predicted"],
                linestyle="none",
                marker=style.MARKERS[number % len(style.MARKERS)],
                color=style.colour(strategy),
                label=strategy,
                gid=f"predicted/{strategy}",
            )
        ends = [
            1e3 * members[["measured", "predicted"]].min().min(),
            1e3 * members[["measured", "predicted"]].max().max(),
        ]
        ends = [ends[0] / 1.2, ends[1] * 1.2]
        axes.plot(ends, ends, ":", color="0.5", linewidth=0.8, gid="exact")
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(lambda value, _: style.number(value))
        axes.set_xlabel("measured, ms a step")
        axes.set_ylabel("predicted, ms a step")
        style.titled(figure, axes, f"{model}: predicted step time (dotted: exact)")
        figures[str(model)] = figure
    return figures or "no run has a predicted step time beside its measurement"
