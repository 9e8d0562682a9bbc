"""Which series share a panel, and how panels share a page: more than eight lines in one cannot be told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis.figures import style

MOST_SERIES = 8  # a panel
NUM_COLUMNS = 2


@dataclass(frozen=True)
class Panel:
    title: str  # what its series have in common; empty where there is one panel
    names: dict[str, str]  # label of a series -> what of it the title does not say, in the order to be drawn


def grouped(labels: Sequence[str]) -> list[Panel]:
    """The panels of these series, whose labels are those of `strata_analysis.series`.

    Where they are too many for one panel, a panel holds what has the same strategy or the same value of one option,
    whichever takes the fewest panels; where no such panels are small enough, or most of them hold one series,
    neighbours by name.
    """
    labels = sorted(set(labels), key=natural)
    if len(labels) <= MOST_SERIES:
        return [Panel("", {label: label for label in labels})]
    words = {label: _words(label) for label in labels}
    fewest = -(-len(labels) // MOST_SERIES)
    best: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for of_one in words.values() for name in of_one):
        groups: dict[str, list[str]] = {}
        for label in labels:
            groups.setdefault(words[label].get(name, ""), []).append(label)
        is_small = all(len(members) <= MOST_SERIES for members in groups.values())
        if is_small and len(groups) <= 2 * fewest and (not best or len(groups) < len(best)):
            best = groups
    size = -(-len(labels) // fewest)
    neighbours = [labels[begin : begin + size] for begin in range(0, len(labels), size)]
    return [_panel(members) for members in (best.values() or neighbours)]


def natural(label: str) -> list:
    """Sorts labels with their numbers as numbers: 64 before 128."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", label)]


def _panel(labels: list[str]) -> Panel:
    """Named by what its series have in common."""
    words = [label.split(", ") for label in labels]
    common = [word for word in words[0] if all(word in others for others in words)]
    rest = [", ".join(word for word in of_one if word not in common) for of_one in words]
    return Panel(", ".join(common), {label: name or label for label, name in zip(labels, rest, strict=True)})


def _words(label: str) -> dict[str, str]:
    """What a label says by what it speaks of: `gpipe, stages 2, 4 ranks` of a strategy, of stages and of ranks."""
    strategy, *others = label.split(", ")
    found = {"strategy": strategy}
    for text in others:
        first, *_, last = text.split() if " " in text else ("", "")
        name = last.removesuffix("s") if re.match(r"\d", first) else first
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def subplots(panels: Sequence[Panel], names: dict[str, str]) -> tuple[Figure, list[Axes]]:
    """Axes with shared x and y, one a panel. `names`: what legends say of each series, which takes its height."""
    if len(panels) == 1:
        figure, axes = pyplot.subplots()
        return figure, [axes]
    num_rows = -(-len(panels) // NUM_COLUMNS)
    width = style.PAGE_INCHES / NUM_COLUMNS
    lines = max(_num_legend_lines([names[label] for label in panel.names], width) for panel in panels)
    size = (style.PAGE_INCHES, num_rows * (1.6 + 0.125 * (lines + 1)) + 0.4)
    figure, grid = pyplot.subplots(num_rows, NUM_COLUMNS, figsize=size, sharex=True, sharey=True, squeeze=False)
    for unused in grid.flat[len(panels) :]:
        unused.remove()
    return figure, list(grid.flat[: len(panels)])


def _num_legend_columns(words: Sequence[str], width: float) -> int:
    """As many as fit beside each other if all were as long as the longest; one where some take several lines."""
    return max(1, int(17 * width / (max(map(len, words)) + 8)))


def _num_legend_lines(words: Sequence[str], width: float) -> int:
    num_columns = _num_legend_columns(words, width)
    if num_columns == 1:
        return sum(len(style.legend_lines(text, width)) for text in words)
    return -(-len(words) // num_columns)


def finish(figure: Figure, all_axes: list[Axes], panels: Sequence[Panel], title: str, x_label: str, y_label: str):
    """Title, labels of the axes at the edges, and legends: below a single panel, above each of several."""
    for number, axes in enumerate(all_axes):
        is_lowest = number + NUM_COLUMNS >= len(all_axes)
        axes.set_xlabel(x_label if is_lowest else "")
        axes.set_ylabel(y_label if number % NUM_COLUMNS == 0 else "")
        axes.tick_params(labelbottom=is_lowest or len(all_axes) == 1)
    if len(all_axes) == 1:
        style.titled(figure, all_axes[0], title)
        return
    figure.suptitle(style.wrapped(title, figure.get_figwidth()), fontsize=8)
    for axes, panel in zip(all_axes, panels, strict=True):
        handles, labels = axes.get_legend_handles_labels()
        width = style.PAGE_INCHES / NUM_COLUMNS
        lines = ["\n".join(style.legend_lines(label, width)) for label in labels]
        axes.legend(
            handles,
            lines,
            title=panel.title,
            title_fontproperties={"weight": "bold", "size": 7},
            alignment="left",
            ncols=_num_legend_columns(labels, width),
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.1,
        )
