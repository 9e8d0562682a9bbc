"""What figures 9 and 10 share: bars of a step's time, a panel an optimizer, a group a model and machine."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from strata_analysis.figures import bars, style
from strata_analysis.published.autoddl import BLOCKING, NAMES

EXPOSED_COLOUR = "0.25"


def panels(rows: pd.DataFrame, title: str) -> Figure:
    """gids: `step/<optimizer>/<model>/<nodes>x<devices>/<strategy>` on bars of seconds, `exposed/…` on the
    part of each in which ranks communicate and do not compute, `failed/…` on the word where there is no bar.

    @param rows as published.autoddl.cells gives them. What strategies and optimizers there are, they say.
    """
    optimizers = list(dict.fromkeys(rows["optimizer"]))
    strategies = list(dict.fromkeys(name for name in [*NAMES, *rows["strategy"]] if name in set(rows["strategy"])))
    figure, all_axes = pyplot.subplots(
        1, len(optimizers), figsize=(style.COLUMN_INCHES * min(2, len(optimizers)), style.HEIGHT_INCHES), squeeze=False
    )
    for axes, optimizer in zip(all_axes[0], optimizers, strict=True):
        _groups(axes, rows[rows["optimizer"] == optimizer], strategies)
        if len(optimizers) > 1:
            axes.set_title(optimizer, fontsize=7)
    all_axes[0][0].set_ylabel("seconds a step")
    figure.suptitle(title, fontsize=8)
    handles = [bars.key_of_simulated(_colour(name), NAMES.get(name, name)) for name in strategies]
    handles.append(Patch(facecolor=EXPOSED_COLOUR, label="exposed communication"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) if len(optimizers) > 1 else 2)
    return figure


def _colour(strategy: str) -> str | tuple[float, ...]:
    return style.paler(style.colour("summa"), 0.5) if strategy == BLOCKING else style.colour(strategy)


def _groups(axes: Axes, members: pd.DataFrame, strategies: list[str]) -> None:
    labels = [f"{row.model}\n{row.nodes} \N{MULTIPLICATION SIGN} {row.devices}" for row in members.itertuples()]
    groups = list(dict.fromkeys(labels))
    for label, row in zip(labels, members.itertuples(index=False), strict=True):
        place, room = bars.place_in_group(groups.index(label), strategies.index(row.strategy), len(strategies))
        name = f"{row.optimizer}/{row.model}/{row.nodes}x{row.devices}/{row.strategy}"
        if row.ended != "ok":
            bars.say_missing(axes, place, row.ended, f"failed/{name}")
            continue
        bars.single(axes, place, row.step_seconds, 0.9 * room, _colour(row.strategy), True, f"step/{name}")
        bars.single(axes, place, row.exposed_seconds, 0.4 * room, EXPOSED_COLOUR, False, f"exposed/{name}")
    axes.set_xticks(range(len(groups)), groups, fontsize=6)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.set_ylim(bottom=0.0)
    axes.grid(axis="x", visible=False)
