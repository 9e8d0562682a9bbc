"""Upright bars that papers' figures are made of, one at a time."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Patch

GROUP_WIDTH = 0.84  # of the distance between groups


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


def place_in_group(group: int, number: int, num_bars: int) -> tuple[float, float]:
    """Where the middle of bar `number` of a group of `num_bars` stands, and how much room it has."""
    room = GROUP_WIDTH / num_bars
    return group + room * (number - 0.5 * (num_bars - 1)), room


def key_of_simulated(colour: str | tuple[float, ...], label: str) -> Patch:
    """What a legend shows of bars that are simulated."""
    return Patch(facecolor=colour, edgecolor="white", hatch="////", label=label)
