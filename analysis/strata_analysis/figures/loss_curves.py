"""Training loss over steps: every point of a model, warm-up included."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures import style
from strata_analysis.load import Results

LINE_STYLES = ("-", "--", ":", "-.")


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `loss/<point>`."""
    figures = {}
    for model, members in points[~points["simulated"].astype(bool)].groupby("model_name"):
        figure, axes = pyplot.subplots()
        counts = sorted(set(members["num_ranks"]))
        for _, point in members.sort_values(["series", "num_ranks"]).iterrows():
            steps = results.steps_of(point, phase=None)
            if steps.empty:
                continue
            ranks = "rank" if point["num_ranks"] == 1 else "ranks"
            ending = "" if point["status"] == "ok" else f" ({point['status']})"
            axes.plot(
                steps["step"],
                steps["loss"],
                LINE_STYLES[counts.index(point["num_ranks"]) % len(LINE_STYLES)],
                color=style.colour(point["strategy_name"]),
                alpha=0.4 + 0.6 / (1 + counts.index(point["num_ranks"])),
                label=f"{point['series']}, {point['num_ranks']} {ranks}{ending}",
                gid=f"loss/{point['point']}",
            )
        if not axes.lines:
            pyplot.close(figure)
            continue
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        style.titled(figure, axes, f"{model}: training loss")
        figures[str(model)] = figure
    return figures or "no point has a measured step"
