"""AMSP's table V as bars: tokens a second and GPU of the four overlap levels, paper and simulated side by side."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from strata_analysis.figures import bars
from strata_analysis.figures.amsp.over_ranks import HEIGHT_INCHES, WIDTH_INCHES
from strata_analysis.load import Results
from strata_analysis.published import mean_absolute_error
from strata_analysis.published.amsp import LEVELS, MODELS, table_5

EXPERIMENT = "amsp_table_5"
COLOURS = dict(zip(LEVELS.values(), ("#BDBDBD", "#74A9CF", "#2B8CBE", "#7A0177"), strict=True))


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `paper/<model>/<level>/<micro-batches>` and `simulated/…` on the bars."""
    rows = table_5(points).rows
    figure, all_axes = pyplot.subplots(1, len(MODELS), figsize=(WIDTH_INCHES, HEIGHT_INCHES))
    for axes, model in zip(all_axes, MODELS, strict=True):
        members = rows[rows["model"] == model]
        counts = sorted(set(members["micro_batches"]))
        for row in members.itertuples(index=False):
            place = counts.index(row.micro_batches) + 0.2 * (list(COLOURS).index(row.overlap) - 1.5)
            for shift, source in ((-0.05, "paper"), (0.05, "simulated")):
                gid = f"{source}/{model}/{row.overlap}/{row.micro_batches}"
                height = getattr(row, source)
                bars.single(axes, place + shift, height, 0.09, COLOURS[row.overlap], source == "simulated", gid)
        axes.set_xticks(range(len(counts)), [f"M={count}" for count in counts])
        axes.grid(axis="x", visible=False)
        axes.set_title(f"{model}, mean absolute error {100 * mean_absolute_error(members):.0f} %", fontsize=7)
    all_axes[0].set_ylabel("tokens a second and GPU")
    figure.suptitle("AMSP table V: overlap levels on 64 GPUs, paper (plain) and simulated (hatched)", fontsize=8)
    handles = [Patch(color=colour, label=level) for level, colour in COLOURS.items()]
    handles += [
        Patch(color="0.5", label="paper"),
        Patch(facecolor="0.5", edgecolor="white", hatch="////", label="simulated"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return {"tgs": figure}
