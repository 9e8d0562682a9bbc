"""Where a step's time goes: kernels, communication that nothing hides, the rest."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures import bars, style
from strata_analysis.load import Results

PARTS = {
    "compute": ("compute", "#0072B2"),
    "exposed": ("exposed communication", "#D55E00"),
    "other": ("other", "#999999"),
}


def parts_of(points: pd.DataFrame) -> pd.DataFrame:
    """The parts of a step of its slowest rank as differences of medians of sums: together they are the median step."""
    return points.assign(
        compute=points["compute_end_seconds"],
        exposed=points["exposed_end_seconds"] - points["compute_end_seconds"],
        other=points["step_seconds"] - points["exposed_end_seconds"],
    )


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `<part>/<point>` of the bars, `communication/<point>` of the mark for all communication."""
    figures = {}
    for model, members in points.groupby("model_name"):
        if not members["compute_end_seconds"].notna().any():
            continue
        table = bars.ordered(parts_of(members))
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
        axes.set_ylabel("ms a step, slowest rank (medians)")
        style.titled(figure, axes, f"{model}: time of a step")
        figures[str(model)] = figure
    return figures or "no point has a measured step"
