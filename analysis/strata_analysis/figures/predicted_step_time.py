"""Predicted against measured step time: a point on the diagonal was predicted exactly."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures import panels, style
from strata_analysis.load import Results
from strata_analysis.predicted import STEP, errors


def draw(results: Results, _points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `predicted/<strategy>`, `exact`."""
    rows = errors(results)
    rows = rows[rows["metric"] == STEP]
    figures = {}
    for model, members in rows.groupby("model_name"):
        figures[str(model)] = _figure(str(model), members)
    return figures or "no run has a predicted step time beside its measurement"


def _figure(model: str, members: pd.DataFrame) -> Figure:
    shown = panels.grouped(list(members["strategy_name"]))
    figure, all_axes = panels.subplots(shown, {name: name for name in set(members["strategy_name"])})
    of_both = 1e3 * members[["measured", "predicted"]]
    ends = [of_both.min().min() / 1.2, of_both.max().max() * 1.2]
    for axes, panel in zip(all_axes, shown, strict=True):
        for number, strategy in enumerate(panel.names):
            here = members[members["strategy_name"] == strategy]
            axes.plot(
                1e3 * here["measured"],
                1e3 * here["predicted"],
                linestyle="none",
                marker=style.MARKERS[number % len(style.MARKERS)],
                color=style.colour(strategy),
                label=strategy,
                gid=f"predicted/{strategy}",
            )
        axes.plot(ends, ends, ":", color="0.5", linewidth=0.8, gid="exact")
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        style.ratio_ticks(axes.xaxis, ends)
        style.ratio_ticks(axes.yaxis, ends)
    title = f"{model}: predicted step time (dotted: exact)"
    panels.finish(figure, all_axes, shown, title, "measured, ms a step", "predicted, ms a step")
    return figure
