"""What all figures share: size, colours by strategy, how a series is named, how a failed point looks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib
import matplotlib.colors
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

COLUMN_INCHES = 3.5  # of a two-column paper
PAGE_INCHES = 7.2
HEIGHT_INCHES = 2.6

# Okabe and Ito's palette, told apart with any colour vision. A strategy keeps its colour in every figure.
STRATEGY_COLOURS = {
    "single": "#000000",
    "ddp": "#0072B2",
    "zero1": "#56B4E9",
    "zero2": "#009E73",
    "zero3": "#D55E00",
    "mics": "#CC79A7",
    "zeropp": "#E69F00",
    "amsp": "#7A0177",
    "osdp": "#B10026",
    "osdp-base": "#FC9272",
    "osdp-search": "#EF3B2C",
    "osdp-sdp": "#67000D",
    "3d": "#A6761D",
    "3d+osdp": "#4D004B",
    "megatron": "#238B45",
    "decomposed": "#B35806",
    "summa": "#C51B7D",
    "autoddl": "#54278F",
    "oases": "#E7298A",
    "merak": "#66A61E",
    "alpa": "#7570B3",
    "gpipe": "#8C510A",
    "1f1b": "#01665E",
    "interleaved": "#35978F",
    "2bw": "#DFC27D",
    "cdp-v1": "#80B1D3",
    "cdp-v2": "#253494",
    "auto": "#E31A1C",
}
OTHER_COLOUR = "#666666"
MARKERS = "osD^vP*X"
PALEST = 0.75  # part of the way to white


@contextmanager
def applied() -> Iterator[None]:
    """Fonts and lines for a figure one column wide; output that depends on the data alone."""
    with matplotlib.rc_context(
        {
            "figure.figsize": (COLUMN_INCHES, HEIGHT_INCHES),
            "figure.dpi": 200,
            "figure.constrained_layout.use": True,
            "font.size": 8,
            "axes.titlesize": 8,
            "axes.labelsize": 8,
            "legend.fontsize": 6.5,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "lines.linewidth": 1.2,
            "lines.markersize": 4,
            "axes.grid": True,
            "grid.linewidth": 0.4,
            "grid.alpha": 0.5,
            "axes.axisbelow": True,
            "hatch.linewidth": 0.4,
            "legend.frameon": False,
            "svg.hashsalt": "strata",
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
        }
    ):
        yield


def metadata(file_format: str) -> dict:
    """No dates: the same results give the same files."""
    return {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}[
        file_format
    ]


@contextmanager
def laid_out(figure: Figure) -> Iterator[None]:
    """Its axes have their places once, for all files that it is written to: each would else be drawn twice for them."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    with matplotlib.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
        yield


def colour(strategy: str) -> str:
    return STRATEGY_COLOURS.get(strategy, OTHER_COLOUR)


def paler(shade: str, paleness: float = 1.0) -> tuple[float, ...]:
    """Nearer to white; 0: as it is, 1: as pale as can be told from white."""
    return tuple(part + PALEST * paleness * (1.0 - part) for part in matplotlib.colors.to_rgb(shade))


def line_style(point: pd.Series, number: int, paleness: float = 0.0) -> dict:
    """Simulated series are dashed and hollow: nobody takes them for measured ones.

    `paleness`: 0 to 1, by which several series of one strategy are told apart.
    """
    simulated = bool(point["simulated"])
    shade = paler(colour(point["strategy_name"]), paleness)
    return {
        "color": shade,
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": "--" if simulated else "-",
        "markerfacecolor": "none" if simulated else shade,
    }


def good(points: pd.DataFrame) -> pd.DataFrame:
    return points[points["status"] == "ok"]


def failed(points: pd.DataFrame) -> pd.DataFrame:
    return points[~points["status"].isin(["ok", "running"])]


def mark_failures(axes: Axes, series: pd.DataFrame, row: int, shade, label: str | None) -> None:
    """A cross above the x axis for each failed point: a missing marker would look like a point never asked for.

    `row`: number of the series, which sets its height. `label`: of the series, where nothing else of it is drawn.
    """
    for _, point in failed(series).iterrows():
        axes.plot(
            [point["num_ranks"]],
            [0.04 + 0.06 * row],
            marker="x",
            color=shade,
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            label=label,
            gid=f"failed/{point['point']}",
        )
        label = None


def mark_disturbed(axes: Axes, points: pd.DataFrame, column: str, factor: float = 1.0) -> None:
    """A ring around the points of which some launch was disturbed; `factor` is what `column` is drawn with."""
    disturbed = good(points)
    disturbed = disturbed[disturbed["num_disturbed"] > 0]
    if disturbed.empty:
        return
    axes.plot(
        disturbed["num_ranks"],
        factor * disturbed[column],
        marker="o",
        markersize=11,
        markerfacecolor="none",
        color="0.3",
        linestyle="none",
        label="disturbed launch",
        gid=f"disturbed/{column}",
    )


def number(value: float) -> str:
    """Four digits, and no powers of ten that a reader has to multiply out."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def rank_axis(axes: Axes, points: pd.DataFrame) -> None:
    """Doubling rank counts at equal distances, every one with a tick, labelled unless another label is too near."""
    counts = sorted(set(points["num_ranks"]))
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, _apart(counts))
    axes.minorticks_off()
    axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
    axes.set_xlabel("ranks")


def _apart(counts: list[int]) -> list[str]:
    """Labels of ticks on a logarithmic axis one column wide; empty where one would touch the label before it."""
    per_inch = math.log(1.7 * counts[-1] / counts[0]) / (COLUMN_INCHES - 0.9)
    labels, free_from = [], -math.inf
    for count in counts:
        half = 0.5 * per_inch * (0.06 * len(str(count)) + 0.06)
        labels.append(str(count) if math.log(count) - half >= free_from else "")
        free_from = math.log(count) + half if labels[-1] else free_from
    return labels


def ratio_ticks(axis: Axis, ends: Sequence[float]) -> None:
    """Few plain numbers on a logarithmic axis, however narrow it is."""
    is_narrow = ends[1] < 3 * ends[0]
    axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]) if is_narrow else LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: number(value))


def intervals(series: pd.DataFrame, name: str) -> list:
    """Distances to the ends of the median's interval, nothing where there were too few values."""
    low = (series[name] - series[f"{name}_low"]).fillna(0.0)
    high = (series[f"{name}_high"] - series[name]).fillna(0.0)
    return [low.clip(lower=0.0), high.clip(lower=0.0)]


def about(model: str, points: pd.DataFrame) -> str:
    """How a title begins: with the model, and that everything is simulated where labels of series do not say it."""
    return f"{model}, simulated" if points["simulated"].astype(bool).all() else model


def wrapped(title: str, width_inches: float) -> str:
    return "\n".join(textwrap.fill(line, int(13 * width_inches)) for line in title.split("\n"))


def legend_lines(label: str, width_inches: float) -> list[str]:
    """The lines of a legend's entry: what is longer than the figure is wide would leave it."""
    return textwrap.wrap(label, int(17 * width_inches) - 8)


def titled(figure: Figure, axes: Axes, title: str) -> None:
    """Title over the axes, wrapped; the legend below them, for which the figure grows."""
    width = figure.get_figwidth()
    axes.set_title(wrapped(title, width))
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    entries = [legend_lines(label, width) for label in labels]
    longest = max(len(line) for lines in entries for line in lines)
    num_columns = max(1, int(17 * width / (longest + 8)))
    num_rows = -(-len(labels) // num_columns) * max(map(len, entries))
    figure.set_figheight(figure.get_figheight() + 0.125 * (num_rows - 1))
    figure.legend(
        handles,
        ["\n".join(lines) for lines in entries],
        loc="outside lower center",
        ncols=num_columns,
        borderaxespad=0.1,
    )
