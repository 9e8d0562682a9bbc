"""Lines over the number of ranks: what the figures of scaling and of MFU have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis.figures import panels, style


@dataclass(frozen=True)
class Line:
    label: str  # of the series
    points: pd.DataFrame
    remark: str = ""  # what the legend says beside the label


@dataclass(frozen=True)
class Quantity:
    column: str
    factor: float  # what the column is drawn with
    gid: str  # of lines, before the label
    y_label: str


def draw(title: str, lines: Sequence[Line], quantity: Quantity, complete: Callable[[Axes, list[Line]], None]) -> Figure:
    """One figure, of as many panels as keep the lines of each to a readable number.

    `complete` is called with the axes of every panel and its lines, when they are drawn. gids: `<quantity.gid>/<label>`
    of lines, `failed/<point>` of crosses.
    """
    by_label = {line.label: line for line in lines}
    points = pd.concat([line.points for line in lines])
    shown = panels.grouped(list(by_label))
    names = {label: _legend_words(name, by_label[label]) for panel in shown for label, name in panel.names.items()}
    figure, all_axes = panels.subplots(shown, names)
    for axes, panel in zip(all_axes, shown, strict=True):
        members = [by_label[label] for label in panel.names]
        _draw_lines(axes, members, names, quantity)
        of_panel = pd.concat([line.points for line in members])
        style.rank_axis(axes, points)
        complete(axes, members)
        style.mark_disturbed(axes, of_panel, quantity.column, quantity.factor)
    panels.finish(figure, all_axes, shown, title, "ranks", quantity.y_label)
    return figure


def _legend_words(name: str, line: Line) -> str:
    endings = sorted(set(style.failed(line.points)["status"]))
    return "; ".join([name, *([line.remark] if line.remark else []), *(f"cross: {ending}" for ending in endings)])


def _draw_lines(axes: Axes, lines: list[Line], names: dict[str, str], quantity: Quantity) -> None:
    num_of_strategy = Counter(line.points.iloc[0]["strategy_name"] for line in lines)
    drawn: Counter = Counter()
    for number, line in enumerate(lines):
        good = style.good(line.points)
        strategy = line.points.iloc[0]["strategy_name"]
        look = style.line_style(line.points.iloc[0], number, drawn[strategy] / num_of_strategy[strategy])
        drawn[strategy] += 1
        words = names[line.label]
        if len(good):
            low, high = style.intervals(good, quantity.column)
            bars = axes.errorbar(
                good["num_ranks"],
                quantity.factor * good[quantity.column],
                yerr=[quantity.factor * low, quantity.factor * high],
                capsize=2,
                label=words,
                **look,
            )
            bars.lines[0].set_gid(f"{quantity.gid}/{line.label}")
        style.mark_failures(axes, line.points, number, look["color"], None if len(good) else words)
