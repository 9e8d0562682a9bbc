"""OSDP's figure 7: time and peak memory of one sharded operator by the number of its slices, on 8 GPUs."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures import bars, style
from strata_analysis.load import Results
from strata_analysis.published.osdp import of_figure_7

EXPERIMENT = "osdp_figure_7_simulated"
VALUES = {"milliseconds": "time, ms", "peak_mib": "peak memory, MiB"}
SMALL = 4096  # the paper draws smaller and larger sizes apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `<column of of_figure_7>/<hidden size>/<slices>`; `failed/…` where there is no bar."""
    rows = of_figure_7(points)
    figure, all_axes = pyplot.subplots(1, 4, figsize=(style.PAGE_INCHES, 2.5))
    sizes = [sorted(set(rows.loc[(rows["hidden"] < SMALL) == small, "hidden"])) for small in (True, False)]
    panels = [(column, of_panel) for of_panel in sizes for column in VALUES]
    for axes, (column, of_panel), letter in zip(all_axes, panels, "abcd", strict=True):
        counts = sorted(set(rows["slices"]))
        width = 0.8 / len(of_panel)
        for number, hidden in enumerate(of_panel):
            for row in rows[rows["hidden"] == hidden].itertuples(index=False):
                place = counts.index(row.slices) + width * (number - 0.5 * (len(of_panel) - 1))
                name = f"{hidden}/{row.slices}"
                if row.ended == "ok":
                    height = getattr(row, column)
                    bars.single(axes, place, height, 0.9 * width, COLOURS[number], True, f"{column}/{name}")
                else:
                    bars.say_missing(axes, place, row.ended, f"failed/{column}/{name}")
        axes.set_xticks(range(len(counts)), counts)
        axes.set_xlabel("slices")
        axes.set_title(f"({letter}) {VALUES[column]}")
        axes.grid(axis="x", visible=False)
        axes.margins(y=0.35)
        handles = [
            bars.key_of_simulated(colour, f"hidden size {hidden}")
            for colour, hidden in zip(COLOURS, of_panel, strict=False)
        ]
        axes.legend(handles=handles, loc="upper right", fontsize=5.5)
    figure.suptitle("OSDP figure 7: one sharded operator in slices, 8 GPUs, simulated", fontsize=8)
    return {"slices": figure}
