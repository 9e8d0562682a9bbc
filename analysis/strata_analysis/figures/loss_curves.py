"""Training loss over steps: every point of a model, warm-up included."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures import panels, style
from strata_analysis.load import Results

LINE_STYLES = ("-", "--", ":", "-.")


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `loss/<point>`."""
    figures = {}
    for model, members in points[~points["simulated"].astype(bool)].groupby("model_name"):
        steps = dict(zip(members["point"], results.rows_of("steps", members, ("step", "loss")), strict=True))
        trained = members[[len(steps[point]["step"]) > 0 for point in members["point"]]]
        if len(trained):
            figures[str(model)] = _figure(str(model), trained.assign(curve=_names(trained)), steps)
    return figures or "no point has a measured step"


def _names(points: pd.DataFrame) -> list[str]:
    return [
        f"{point['series']}, {point['num_ranks']} {'rank' if point['num_ranks'] == 1 else 'ranks'}"
        for _, point in points.iterrows()
    ]


def _figure(model: str, points: pd.DataFrame, steps: dict[str, dict[str, np.ndarray]]) -> Figure:
    counts = sorted(set(points["num_ranks"]))
    shown = panels.grouped(list(points["curve"]))
    names = {label: name for panel in shown for label, name in panel.names.items()}
    figure, all_axes = panels.subplots(shown, names)
    for axes, panel in zip(all_axes, shown, strict=True):
        members = points[points["curve"].isin(panel.names)]
        for _, point in members.sort_values(["series", "num_ranks"]).iterrows():
            ending = "" if point["status"] == "ok" else f" ({point['status']})"
            axes.plot(
                steps[point["point"]]["step"],
                steps[point["point"]]["loss"],
                LINE_STYLES[counts.index(point["num_ranks"]) % len(LINE_STYLES)],
                color=style.colour(point["strategy_name"]),
                alpha=0.4 + 0.6 / (1 + counts.index(point["num_ranks"])),
                label=f"{names[point['curve']]}{ending}",
                gid=f"loss/{point['point']}",
            )
    panels.finish(figure, all_axes, shown, f"{model}: training loss", "step", "loss")
    return figure
