"""A comparison as a forest plot: a row a pair, its ratio of step times with the interval, the places apart.

What is left of the line at 1 is faster than the baseline. A filled marker is decided, a hollow one is not; what cannot
be compared says why in words.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from strata_analysis.answer import place_words, places_of
from strata_analysis.compare import INCOMPARABLE, UNDECIDED, Comparison, Pair, compare_with_most_shared
from strata_analysis.figures import style
from strata_analysis.load import Results

MOST_ROWS = 30  # of one panel, headings included
NUM_COLUMNS = 2
ROW_INCHES = 0.14
NAME_CHARACTERS = 34  # more where names would be cut to the same
REASON_CHARACTERS = 40


@dataclass(frozen=True)
class _Row:
    words: str
    pair: Pair | None = None  # None: a heading


def draw(results: Results, _points: pd.DataFrame) -> dict[str, Figure] | str:
    """Of the strategy that shares the most points with the others, which are the candidates."""
    comparison = compare_with_most_shared(results)
    return {"all": figure_of(comparison)} if comparison else "no two strategies share a point"


def figure_of(comparison: Comparison) -> Figure:
    """gids: `ratio/<candidate's point>/<baseline's point>` of markers, `interval/…`, `incomparable/…` of words."""
    panels = _panels(_blocks(comparison.pairs))
    num_columns = min(NUM_COLUMNS, len(panels))
    rows = [panels[first : first + num_columns] for first in range(0, len(panels), num_columns)]
    heights = [ROW_INCHES * max(map(len, row)) + 0.1 for row in rows]
    width = style.PAGE_INCHES if num_columns > 1 else 1.3 * style.COLUMN_INCHES
    with style.applied():
        figure, grid = pyplot.subplots(
            len(rows),
            num_columns,
            figsize=(width, sum(heights) + 1.0),
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": heights},
        )
        for unused in grid.flat[len(panels) :]:
            unused.remove()
        ends = _ends(comparison.pairs)
        for number, (axes, panel) in enumerate(zip(grid.flat, panels, strict=False)):
            _draw_panel(axes, panel, max(map(len, rows[number // num_columns])), ends)
            is_lowest = number + num_columns >= len(panels)
            axes.tick_params(labelbottom=is_lowest)
            axes.set_xlabel("step time, over the baseline's" if is_lowest else "")
        figure.suptitle(style.wrapped(_title(comparison), width), fontsize=8)
        _add_legend(figure)
    return figure


def _title(comparison: Comparison) -> str:
    baselines = sorted({pair.baseline for pair in comparison.pairs})
    against = f"over {baselines[0]}" if len(baselines) == 1 else "over the baseline"
    simulated = ", simulated" if all(pair.simulated for pair in comparison.pairs) else ""
    return f"Ratios of step times {against}, {100 * comparison.confidence:.4g} % intervals{simulated}"


def _blocks(pairs: Sequence[Pair]) -> list[list[_Row]]:
    """A heading and the pairs of each place; a place that fills more than a panel in several blocks."""
    several = len({pair.baseline for pair in pairs}) > 1
    characters = _characters_of({pair.candidate for pair in pairs})
    blocks = []
    for members in places_of(pairs):
        heading = place_words(members[0], pairs).removeprefix("of ").removeprefix("on ")
        heading += f" against {members[0].baseline}" if several else ""
        for first in range(0, len(members), MOST_ROWS - 1):
            part = members[first : first + MOST_ROWS - 1]
            blocks.append([_Row(_shortened(heading, NAME_CHARACTERS))])
            blocks[-1] += [_Row(_shortened(pair.candidate, characters), pair) for pair in part]
    return blocks


def _characters_of(names: set[str]) -> int:
    """NAME_CHARACTERS, or all of the longest name where different names would be cut to the same."""
    cut = {_shortened(name, NAME_CHARACTERS) for name in names}
    return NAME_CHARACTERS if len(cut) == len(names) else max(map(len, names))


def _panels(blocks: list[list[_Row]]) -> list[list[_Row]]:
    """Blocks one below the other, in as few panels as hold them and about as many in each."""
    num_rows = sum(map(len, blocks))
    fewest = -(-num_rows // MOST_ROWS)
    for most_rows in range(-(-num_rows // fewest), MOST_ROWS + 1):
        panels = _filled(blocks, most_rows)
        if len(panels) == fewest:
            break
    return panels


def _filled(blocks: list[list[_Row]], most_rows: int) -> list[list[_Row]]:
    panels: list[list[_Row]] = [[]]
    for block in blocks:
        if panels[-1] and len(panels[-1]) + len(block) > most_rows:
            panels.append([])
        panels[-1] += block
    return panels


def _ends(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Of the x axis: all intervals and the line at 1, with some room."""
    values = pd.Series([value for pair in pairs for value in (pair.ratio, pair.ratio_low, pair.ratio_high)]).dropna()
    low, high = min(1.0, *values, 1.0), max(1.0, *values, 1.0)
    room = max(1.02, (high / low) ** 0.06)
    return low / room, high * room


def _draw_panel(axes: Axes, rows: list[_Row], num_places: int, ends: tuple[float, float]) -> None:
    axes.axvline(1.0, color="0.3", linewidth=0.8, gid="equal")
    for place, row in enumerate(rows):
        if row.pair:
            _draw_pair(axes, place, row.pair)
    axes.set(xscale="log", xlim=ends, ylim=(num_places - 0.4, -0.6))
    style.ratio_ticks(axes.xaxis, ends)
    axes.set_yticks(range(len(rows)), [row.words for row in rows], fontsize=6.5)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if row.pair else "bold")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _draw_pair(axes: Axes, place: int, pair: Pair) -> None:
    name = f"{pair.candidate_point}/{pair.baseline_point}"
    colour = style.colour(pair.candidate.split(",")[0])
    if pair.verdict == INCOMPARABLE:
        axes.annotate(
            _shortened(_reason(pair), REASON_CHARACTERS),
            (0.01, place),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=6,
            color="0.35",
            bbox={"facecolor": "white", "linewidth": 0, "pad": 0.4},
            gid=f"incomparable/{name}",
        )
        return
    interval = [pair.ratio_low, pair.ratio_high]
    axes.plot(interval, [place, place], color=colour, solid_capstyle="butt", gid=f"interval/{name}")
    fill = "white" if pair.verdict == UNDECIDED else colour
    axes.plot([pair.ratio], [place], "o", color=colour, markerfacecolor=fill, gid=f"ratio/{name}")


def _reason(pair: Pair) -> str:
    """Why a pair is incomparable, without the name that stands at its row anyway."""
    return f"incomparable: {pair.reason.removeprefix(f'{pair.candidate}: ')}"


def _shortened(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder=" …") if len(text) > width else text


def _add_legend(figure: Figure) -> None:
    grey = {"color": "0.3", "linestyle": "none", "marker": "o"}
    handles = [
        Line2D([], [], label="decided", **grey),
        Line2D([], [], label="undecided", markerfacecolor="white", **grey),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, borderaxespad=0.1)
