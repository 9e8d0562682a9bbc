"""Where a step's time goes: kernels, communication that nothing hides, the rest."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis.figures import stacked, style
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
        if members["compute_end_seconds"].notna().any():
            title = f"{style.about(str(model), members)}: time of a step"
            x_label = "ms a step, slowest rank (medians)"
            figures[str(model)] = stacked.draw(title, x_label, parts_of(members), PARTS, 1e3, _mark_communication)
    return figures or "no point has a measured step"


def _mark_communication(axes: Axes, place: int, point: pd.Series) -> None:
    if point["num_ranks"] > 1:
        milliseconds = 1e3 * point["communication_seconds"]
        words = "all communication, hidden or not"
        stacked.add_mark(axes, place, milliseconds, words, f"communication/{point['point']}")
