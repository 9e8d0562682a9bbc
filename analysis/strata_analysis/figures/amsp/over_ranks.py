"""What figures 11-13, 16 and 17 share: a panel a model, a line a strategy over GPUs, printed numbers marked."""

from __future__ import annotations

import textwrap

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from strata_analysis.figures import style
from strata_analysis.published.amsp import MODELS

NAMES = {"amsp": "AMSP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "mics": "MiCS", "zeropp": "ZeRO++"}
WIDTH_INCHES = 7.2
HEIGHT_INCHES = 3.1


def panels(
    ours: pd.DataFrame,
    value: str,
    label: str,
    title: str,
    printed: pd.DataFrame | None = None,
    words: dict[str, str] | None = None,
    scale: float = 1.0,
    printed_label: str = "paper",
) -> Figure:
    """gids: `simulated/<model>/<strategy>` on lines, `paper/<model>/<strategy>` on marks.

    @param ours rows of published.amsp.of_experiment. @param printed model, strategy, ranks and `value`.
    @param words what is said below the title of each model's panel.
    """
    figure, all_axes = pyplot.subplots(1, len(MODELS), figsize=(WIDTH_INCHES, HEIGHT_INCHES), sharey=value == "mfu")
    for axes, model in zip(all_axes, MODELS, strict=True):
        of_model = ours[ours["model"] == model]
        for strategy, line in of_model.groupby("strategy", sort=False):
            line = line.sort_values("ranks")
            axes.plot(
                line["ranks"],
                scale * line[value],
                "--",
                marker="o",
                markerfacecolor="none",
                color=style.colour(strategy),
                gid=f"simulated/{model}/{strategy}",
            )
        marks = printed[printed["model"] == model] if printed is not None else of_model.iloc[:0]
        for strategy, mark in marks.groupby("strategy", sort=False):
            axes.plot(
                mark["ranks"],
                scale * mark[value],
                linestyle="none",
                marker="*",
                markersize=9,
                markeredgecolor="black",
                markeredgewidth=0.5,
                color=style.colour(strategy),
                gid=f"paper/{model}/{strategy}",
            )
        gpu_axis(axes, ours["ranks"])
        axes.margins(y=0.08)
        axes.set_ylim(bottom=0.0)
        below = "\n".join(textwrap.wrap((words or {}).get(model, ""), 38))
        axes.set_title(f"{model}\n{below}" if below else model, fontsize=7)
    all_axes[0].set_ylabel(label)
    figure.suptitle(title, fontsize=8)
    strategies = [name for name in NAMES if name in set(ours["strategy"])]
    handles = [Line2D([], [], color=style.colour(name), linewidth=2, label=NAMES[name]) for name in strategies]
    grey = {"color": "0.4"}
    handles.append(Line2D([], [], linestyle="--", marker="o", markerfacecolor="none", label="simulated", **grey))
    if printed is not None and not printed.empty:
        handles.append(Line2D([], [], linestyle="none", marker="*", markersize=9, label=printed_label, **grey))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def gpu_axis(axes: Axes, ranks: pd.Series) -> None:
    counts = sorted(set(ranks))
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts], rotation=60)
    axes.minorticks_off()
    axes.set_xlabel("GPUs")
