"""Upright bars that papers' figures are made of, one at a time."""

from __future__ import annotations

from matplotlib.axes import Axes


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
