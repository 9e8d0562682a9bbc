"""Where a step's time goes: kernels, communication that nothing hides, the rest."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures import bars, style
from strata_analysis.load import Results

PARTS = {
    "compute_seconds": ("compute", "#0072B2"),
    "exposed_communication_seconds": ("exposed communication", "#D55E00"),
    "other_seconds": ("other", "#999999"),
}


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `<column>/<point>` of the bars, `communication/<point>` of the mark for all communication."""
    figures = {}
    for model, members in points.groupby("model_name"):
        if not members["compute_seconds"].notna().any():
            continue
        table = bars.ordered(members)
        figure, axes = bars.subplots(table)
        bars.stack(axes, table, PARTS, 1e3)
        first = True
        for position, point in table[(table["status"] == "ok") & (table["num_ranks"] > 1)].iterrows():
            axes.plot(
                [position],
                [1e3 * point["communication_seconds"]],
                marker="_",
                markersize=12,
                color="black",
                linestyle="none",
                label="all communication, hidden or not" if first else None,
                gid=f"communication/{point['point']}",
            )
            first = False
        bars.name_bars(axes, table)
        axes.set_ylabel("ms a step (medians)")
        style.titled(figure, axes, f"{model}: time of a step")
        figures[str(model)] = figure
    return figures or "no point has a measured step"
