"""What the arena holds at its peak, by category, and what lies outside it."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures import bars, style
from strata_analysis.load import INDEX, Results

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
    """gids: `<column>/<point>` of the bars, `arena/<point>` of the mark at the arena's measured high-water mark."""
    peaks = results.steps.groupby(INDEX, as_index=False)[list(PARTS)].max()
    columns = [name for name in points if name not in PARTS]
    points = points[columns].merge(peaks, on=INDEX, how="left")
    figures = {}
    for model, members in points.groupby("model_name"):
        if not members["parameter_bytes"].notna().any():
            continue
        table = bars.ordered(members)
        figure, axes = bars.subplots(table)
        largest = table["arena_peak_bytes"].max()
        unit, name = (2**30, "GiB") if largest > 2**31 else (2**20, "MiB")
        bars.stack(axes, table, PARTS, 1.0 / unit)
        first = True
        for position, point in table[table["status"] == "ok"].iterrows():
            axes.plot(
                [position],
                [point["arena_peak_bytes"] / unit],
                marker="_",
                markersize=12,
                color="black",
                linestyle="none",
                label="arena, measured" if first else None,
                gid=f"arena/{point['point']}",
            )
            first = False
        bars.name_bars(axes, table)
        axes.set_ylabel(f"{name} a rank at the peak")
        style.titled(figure, axes, f"{model}: memory by category")
        figures[str(model)] = figure
    return figures or "no point has a step"
