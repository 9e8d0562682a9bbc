"""What the arena holds at its peak, by category, and what lies outside it."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis.figures import stacked, style
from strata_analysis.load import Results

PARTS = {
    "parameter_bytes": ("parameters", "#0072B2"),
    "gradient_bytes": ("gradients", "#D55E00"),
    "optimizer_bytes": ("optimizer", "#009E73"),
    "activation_bytes": ("activations", "#E69F00"),
    "workspace_bytes": ("workspace", "#CC79A7"),
    "communication_bytes": ("communication", "#56B4E9"),
    "outside_arena_peak_bytes": ("outside the arena", "#999999"),
}


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `<column>/<point>` of the bars, `arena/<point>` of the mark at the arena's high-water mark."""
    peaks = [
        {name: values.max() if len(values) else math.nan for name, values in steps.items()}
        for steps in results.rows_of("steps", points, PARTS)
    ]
    points = points.assign(**pd.DataFrame(peaks, index=points.index, columns=list(PARTS)))
    figures = {}
    for model, members in points.groupby("model_name"):
        if not members["parameter_bytes"].notna().any():
            continue
        unit, name = (2**30, "GiB") if members["arena_peak_bytes"].max() > 2**31 else (2**20, "MiB")

        def mark_arena(axes: Axes, place: int, point: pd.Series, unit: int = unit) -> None:
            high = point["arena_peak_bytes"] / unit
            stacked.add_mark(axes, place, high, "highest of the arena", f"arena/{point['point']}")

        title, x_label = f"{style.about(str(model), members)}: memory by category", f"{name} a rank at the peak"
        figures[str(model)] = stacked.draw(title, x_label, members, PARTS, 1.0 / unit, mark_arena)
    return figures or "no point has a step"
