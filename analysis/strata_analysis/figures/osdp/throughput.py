"""What figures 5, 6, 8 and 9 share: bars of throughput, a panel a memory limit and family, a group a model."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis.figures import bars, style
from strata_analysis.published.osdp import NAMES

MOST_NAMES_A_LINE = 6  # of the legend, which is as wide as the page


def panels(rows: pd.DataFrame, title: str) -> Figure:
    """gids: `throughput/<model>/<GiB>/<strategy>` on bars, `failed/…` on the word where there is none.

    @param rows as published.osdp.cells gives them. What strategies there are, they say.
    """
    limits = sorted(set(rows["limit_gib"]))
    families = list(dict.fromkeys(rows["family"]))
    strategies = [name for name in [*NAMES, *rows["strategy"]] if name in set(rows["strategy"])]
    strategies = list(dict.fromkeys(strategies))
    widths = [rows.loc[rows["family"] == family, "model"].nunique() for family in families]
    figure, all_axes = pyplot.subplots(
        len(limits),
        len(families),
        figsize=(style.PAGE_INCHES, 0.9 + 1.6 * len(limits)),
        width_ratios=widths,
        squeeze=False,
    )
    for of_limit, limit in zip(all_axes, limits, strict=True):
        for axes, family in zip(of_limit, families, strict=True):
            members = rows[(rows["limit_gib"] == limit) & (rows["family"] == family)]
            _groups(axes, members, strategies)
            axes.set_title(f"{family}, {limit:g} GiB", fontsize=7)
        of_limit[0].set_ylabel("sequences a second")
    figure.suptitle(title, fontsize=8)
    handles = [bars.key_of_simulated(style.colour(name), NAMES.get(name, name)) for name in strategies]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), MOST_NAMES_A_LINE))
    return figure


def _groups(axes: Axes, members: pd.DataFrame, strategies: list[str]) -> None:
    settings = list(dict.fromkeys(members["setting"]))
    for row in members.itertuples(index=False):
        place, room = bars.place_in_group(settings.index(row.setting), strategies.index(row.strategy), len(strategies))
        name = f"{row.model}/{row.limit_gib:g}/{row.strategy}"
        if row.ended == "ok":
            bars.single(axes, place, row.throughput, 0.9 * room, style.colour(row.strategy), True, f"throughput/{name}")
        else:
            bars.say_missing(axes, place, row.ended, f"failed/{name}")
    axes.set_xticks(range(len(settings)), settings)
    axes.set_xlim(-0.5, len(settings) - 0.5)
    axes.set_ylim(bottom=0.0)
    axes.grid(axis="x", visible=False)
