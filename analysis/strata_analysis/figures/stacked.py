"""Stacked horizontal bars, one a point: what time breakdown and memory by category have in common.

Bars lie, because the name of a series is longer than a bar is thick. Where bars are many, a panel holds the points of
one number of ranks, which are those that a person compares; each number has its own scale, as a step on 1024 ranks
would not be seen beside one on 8.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from strata_analysis.figures import panels, style

MOST_BARS = 12  # in one panel, if their series are no more than a panel's
BAR_INCHES = 0.13  # and a line of a bar's name
NAME_WIDTH = 26  # characters
TITLE_WIDTH = 36  # of a panel, which its bars' names make narrow
LONGEST_MARK = 32  # characters of what the legend says of a mark
FAILED_COLOUR = "#B10026"


@dataclass(frozen=True)
class _Panel:
    title: str
    bars: pd.DataFrame  # a row a bar, from the top, with its name


def draw(
    title: str,
    x_label: str,
    points: pd.DataFrame,
    parts: dict[str, tuple[str, str]],
    scale: float,
    mark: Callable[[Axes, int, pd.Series], None],
) -> Figure:
    """`parts`: column -> (label, colour). `mark`: adds to the bar of a point, with its place, what is no part of it.

    gids: `<column>/<point>` on each rectangle, `failed/<point>` on the words in the place of a bar.
    """
    shown = _panels(points)
    num_columns = 1 if len(shown) == 1 else panels.NUM_COLUMNS
    rows = [shown[first : first + num_columns] for first in range(0, len(shown), num_columns)]
    heights = [
        max(BAR_INCHES * (_num_lines(panel.bars) + panel.title.count("\n")) for panel in row) + 0.35 for row in rows
    ]
    width = style.COLUMN_INCHES if num_columns == 1 else style.PAGE_INCHES
    around = 0.6 + 0.16 * -(-(len(parts) + 1) // _num_legend_columns(parts, width))
    figure, grid = pyplot.subplots(
        len(rows),
        num_columns,
        figsize=(width, sum(heights) + around),
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
    )
    for unused in grid.flat[len(shown) :]:
        unused.remove()
    for number, (axes, panel) in enumerate(zip(grid.flat, shown, strict=False)):
        _stack(axes, panel.bars, parts, scale)
        for place, point in panel.bars.iterrows():
            if point["status"] == "ok":
                mark(axes, place, point)
        axes.set_title(panel.title, fontsize=7, fontweight="bold", loc="left")
        axes.set_xlabel(x_label if number + num_columns >= len(shown) else "")
    _scale_alike(grid.flat, shown)
    figure.suptitle(style.wrapped(title, width), fontsize=8)
    _add_legend(figure, parts)
    return figure


def _scale_alike(all_axes: Iterable[Axes], shown: list[_Panel]) -> None:
    """Panels of the same numbers of ranks have one scale, so that bars of all of them can be compared."""
    ranks = [tuple(sorted(set(panel.bars["num_ranks"]))) for panel in shown]
    drawn = list(zip(all_axes, ranks, strict=False))
    for axes, own in drawn:
        axes.set_xlim(0.0, 1.04 * max(1e-9, *(other.dataLim.x1 for other, its in drawn if its == own)))


def _num_legend_columns(parts: dict[str, tuple[str, str]], width: float) -> int:
    """As many as fit beside each other if all were as long as the longest, marks included."""
    return max(1, int(17 * width / (max(LONGEST_MARK, *(len(label) for label, _ in parts.values())) + 8)))


def _add_legend(figure: Figure, parts: dict[str, tuple[str, str]]) -> None:
    """Of all panels, since a mark is missing where no bar of a panel has it; the parts first, in their order."""
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    of_parts = [label for label, _ in parts.values()]
    labels = [*of_parts, *(label for label in handles if label not in of_parts)]
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=_num_legend_columns(parts, figure.get_figwidth()),
        borderaxespad=0.1,
    )


def _panels(points: pd.DataFrame) -> list[_Panel]:
    labels = list(points["series"])
    is_one_series = len(set(labels)) == 1
    names = {label: name for panel in panels.grouped(labels) for label, name in panel.names.items()}
    if is_one_series or (len(set(labels)) <= panels.MOST_SERIES and len(points) <= MOST_BARS):
        bars = points.sort_values(["num_ranks", "series"]).reset_index(drop=True)
        ranks = [f"{count} rank{'s' * (count > 1)}" for count in bars["num_ranks"]]
        words = (
            ranks
            if is_one_series
            else [f"{label}, {count}" for label, count in zip(bars["series"], ranks, strict=True)]
        )
        return [_Panel("", bars.assign(name=words))]
    found = []
    for panel in panels.grouped(labels):
        for count, members in points[points["series"].isin(panel.names)].groupby("num_ranks"):
            order = {label: place for place, label in enumerate(panel.names)}
            bars = members.sort_values("series", key=lambda labels, order=order: labels.map(order)).reset_index(
                drop=True
            )
            title = ", ".join([*([panel.title] if panel.title else []), f"{count} rank{'s' * (count > 1)}"])
            title = textwrap.fill(title, TITLE_WIDTH)
            found.append(_Panel(title, bars.assign(name=bars["series"].map(names))))
    return found


def _wrapped(name: str) -> str:
    return textwrap.fill(name, NAME_WIDTH, break_long_words=False)


def _num_lines(bars: pd.DataFrame) -> int:
    """Of all names, if each took as much room as the longest."""
    return len(bars) * max(1.3, max(_wrapped(name).count("\n") + 1.15 for name in bars["name"]))


def _stack(axes: Axes, bars: pd.DataFrame, parts: dict[str, tuple[str, str]], scale: float) -> None:
    left = pd.Series(0.0, index=bars.index)
    for column, (label, colour) in parts.items():
        widths = (bars[column] * scale).where(bars["status"] == "ok", 0.0).fillna(0.0)
        drawn = axes.barh(bars.index, widths, left=left, label=label, color=colour, height=0.75, linewidth=0)
        for rectangle, point, simulated in zip(drawn, bars["point"], bars["simulated"], strict=True):
            rectangle.set_gid(f"{column}/{point}")
            if simulated:
                rectangle.set(hatch="//", edgecolor="white")
        left += widths
    axes.set_yticks(bars.index, [_wrapped(name) for name in bars["name"]], fontsize=6.5)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.xaxis.set_major_formatter(lambda value, _: style.number(value))
    for place, point in bars[bars["status"] != "ok"].iterrows():
        axes.annotate(
            point["status"],
            (0.02, place),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=6,
            color=FAILED_COLOUR,
            gid=f"failed/{point['point']}",
        )


def add_mark(axes: Axes, place: int, value: float, label: str, gid: str) -> None:
    """A line across a bar."""
    known = axes.get_legend_handles_labels()[1]
    axes.plot(
        [value],
        [place],
        marker="|",
        markersize=8,
        color="black",
        linestyle="none",
        label=None if label in known else label,
        gid=gid,
    )
