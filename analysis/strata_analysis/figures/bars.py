"""Stacked bars, one a point: what time breakdown and memory by category have in common."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis.figures import style


def ordered(members: pd.DataFrame) -> pd.DataFrame:
    return members.sort_values(["series", "num_ranks"]).reset_index(drop=True)


def stack(axes: Axes, bars: pd.DataFrame, parts: dict[str, tuple[str, str]], scale: float) -> None:
    """`parts`: column -> (label, colour). gids: `<column>/<point>` on each rectangle."""
    bottom = pd.Series(0.0, index=bars.index)
    hatches = ["//" if simulated else None for simulated in bars["simulated"]]
    for column, (label, colour) in parts.items():
        heights = (bars[column] * scale).where(bars["status"] == "ok", 0.0).fillna(0.0)
        drawn = axes.bar(bars.index, heights, bottom=bottom, label=label, color=colour, width=0.7, linewidth=0)
        for rectangle, point, hatch in zip(drawn, bars["point"], hatches, strict=True):
            rectangle.set_gid(f"{column}/{point}")
            if hatch:
                rectangle.set(hatch=hatch, edgecolor="white")
        bottom += heights


def subplots(bars: pd.DataFrame) -> tuple[Figure, Axes]:
    """One column wide, wider where there are many bars."""
    width = min(style.PAGE_INCHES, max(style.COLUMN_INCHES, 0.55 * len(bars)))
    return pyplot.subplots(figsize=(width, style.HEIGHT_INCHES))


def name_bars(axes: Axes, bars: pd.DataFrame) -> None:
    """Below each bar its ranks and series; on the place of a failed one, why."""
    labels = list(bars["series"])
    same = len(set(labels)) == 1
    axes.set_xticks(
        bars.index,
        [
            f"{count}" if same else f"{count}\n{textwrap.fill(label, 10, break_long_words=False)}"
            for count, label in zip(bars["num_ranks"], labels, strict=True)
        ],
    )
    axes.tick_params(axis="x", labelsize=7 if len(bars) < 6 else 5)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel(f"ranks ({labels[0]})" if same else "ranks and series")
    for position, point in bars.iterrows():
        if point["status"] != "ok":
            say_missing(axes, position, point["status"], f"failed/{point['point']}")


def say_missing(axes: Axes, place: float, why: str, gid: str) -> None:
    """Upright on the place of a bar that is not there."""
    axes.annotate(
        why,
        (place, 0.02),
        xycoords=axes.get_xaxis_transform(),
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=6,
        color="#B10026",
        gid=gid,
    )


def single(axes: Axes, place: float, height: float, width: float, colour: str, simulated: bool, gid: str) -> None:
    """One bar with an id of its own; hatched where simulated."""
    (bar,) = axes.bar(
        [place], [height], width, color=colour, hatch="////" if simulated else None, edgecolor="white", linewidth=0
    )
    bar.set_gid(gid)
