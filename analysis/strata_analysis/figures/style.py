"""What all figures share: size, colours by strategy, how a series is named, how a failed point looks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    "3d": "#A6761D",
    "3d+osdp": "#4D004B",
    "megatron": "#238B45",
    "autoddl": "#54278F",
    "gpipe": "#8C510A",
    "1f1b": "#01665E",
}
OTHER_COLOUR = "#666666"
MARKERS = "osD^vP*X"


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


def colour(strategy: str) -> str:
    return STRATEGY_COLOURS.get(strategy, OTHER_COLOUR)


def line_style(point: pd.Series, number: int) -> dict:
    """Simulated series are dashed and hollow: nobody takes them for measured ones."""
    simulated = bool(point["simulated"])
    return {
        "color": colour(point["strategy_name"]),
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": "--" if simulated else "-",
        "markerfacecolor": "none" if simulated else colour(point["strategy_name"]),
    }


def good(points: pd.DataFrame) -> pd.DataFrame:
    return points[points["status"] == "ok"]


def failed(points: pd.DataFrame) -> pd.DataFrame:
    return points[~points["status"].isin(["ok", "running"])]


def mark_failures(axes: Axes, points: pd.DataFrame) -> None:
    """A cross on the x axis with the reason: a missing bar or marker would look like a point never asked for."""
    for number, (_, point) in enumerate(failed(points).iterrows()):
        axes.plot(
            [point["num_ranks"]],
            [0.04 + 0.09 * (number % 4)],
            marker="x",
            color=colour(point["strategy_name"]),
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            gid=f"failed/{point['point']}",
        )
        axes.annotate(
            f"{point['strategy_name']}: {point['status']}",
            (point["num_ranks"], 0.04 + 0.09 * (number % 4)),
            xycoords=axes.get_xaxis_transform(),
            xytext=(-3, 0),
            textcoords="offset points",
            fontsize=6,
            ha="right",
            va="center",
        )


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
    """Doubling rank counts at equal distances, every measured one labelled."""
    counts = sorted(set(points["num_ranks"]))
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
    axes.set_xlabel("ranks")


def intervals(series: pd.DataFrame, name: str) -> list:
    """Distances to the ends of the median's interval, nothing where there were too few values."""
    low = (series[name] - series[f"{name}_low"]).fillna(0.0)
    high = (series[f"{name}_high"] - series[name]).fillna(0.0)
    return [low.clip(lower=0.0), high.clip(lower=0.0)]


def titled(figure: Figure, axes: Axes, title: str) -> None:
    """Title over the axes, wrapped; the legend below them, for which the figure grows."""
    axes.set_title("\n".join(textwrap.fill(line, int(15 * figure.get_figwidth())) for line in title.split("\n")))
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    num_columns = max(1, int(17 * figure.get_figwidth() / (max(map(len, labels)) + 8)))
    num_rows = -(-len(labels) // num_columns)
    figure.set_figheight(HEIGHT_INCHES + 0.125 * (num_rows - 1))
    figure.legend(handles, labels, loc="outside lower center", ncols=num_columns, borderaxespad=0.1)
