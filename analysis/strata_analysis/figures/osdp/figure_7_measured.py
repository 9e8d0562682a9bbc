"""OSDP's figure 7, run: peak memory and time of one sharded operator over the slices that it is cut into.

The paper's four panels are small and large operators apart; here a panel is memory, or time over one link, on a
logarithmic axis that holds all sizes.
"""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from strata_analysis.figures import style
from strata_analysis.load import Results
from strata_analysis.published import published
from strata_analysis.series import keys_of

EXPERIMENT = "osdp-figure-7"
WITHOUT_LINK = "shared memory"
COLOURS = ("#9ECAE1", "#6BAED6", "#4292C6", "#2171B5", "#08519C", "#08306B")  # the larger, the darker


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `memory/<hidden>` (MiB), `seconds/<link>/<hidden>` on lines, `failed/<link>/<hidden>/<slices>` on crosses.

    Memory is the same over every link, and drawn once.
    """
    rows = rows_of(points)
    if style.good(rows).empty:
        return "no point ended well"
    links = sorted(set(rows["link"]), key=lambda link: (link != WITHOUT_LINK, link))
    figure, all_axes = pyplot.subplots(1, 1 + len(links), figsize=(style.PAGE_INCHES, 3.1), squeeze=False)
    memory, *times = all_axes[0]
    _lines(memory, rows, links[0], "memory_mib", "memory")
    memory.set_ylabel("peak memory of a rank, MiB")
    memory.set_title(memory_in_words(rows), fontsize=7)
    for axes, link in zip(times, links, strict=True):
        over_link = rows[rows["link"] == link]
        _lines(axes, rows, link, "step_seconds", f"seconds/{link}")
        for _, row in style.failed(over_link).iterrows():
            _cross(axes, rows, row)
        axes.set_ylabel("step, s")
        axes.set_title(f"{link}\n{time_in_words(over_link)}", fontsize=7)
    for axes in all_axes[0]:
        axes.set_xticks(range(len(_slices(rows))), [str(count) for count in _slices(rows)])
        axes.set_xlabel("slices (0: none)")
        axes.set_yscale("log")
        axes.margins(y=0.12)
    kind = "simulated" if rows["simulated"].all() else "measured"
    figure.suptitle(
        f"OSDP figure 7: one operator of 4h by h, sharded over {rows['ranks'].max()} ranks, {kind}", fontsize=8
    )
    handles = [
        Line2D([], [], color=_colour(rows, hidden), marker="o", label=f"h = {hidden}") for hidden in _sizes(rows)
    ]
    if not style.failed(rows).empty:
        handles.append(Line2D([], [], color="0.4", linestyle="none", marker="x", label="out of memory"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return {"splitting": figure}


def rows_of(points: pd.DataFrame) -> pd.DataFrame:
    """hidden, slices, link, ranks, status, simulated, memory_mib, step_seconds: one row a point of the experiment."""
    ours = points[points["experiment_name"] == EXPERIMENT]
    keys = [keys_of(point) for _, point in ours.iterrows()]
    widths = [of_point["model.widths"].strip("[]").split(",") for of_point in keys]
    return pd.DataFrame(
        {
            "hidden": [int(of_point[1]) for of_point in widths],
            "slices": [int(of_point.get("strategy.slices", "0")) for of_point in keys],
            "link": [_link(of_point) for of_point in keys],
            "ranks": ours["num_ranks"].to_numpy(),
            "status": ours["status"].to_numpy(),
            "simulated": ours["simulated"].to_numpy().astype(bool),
            "memory_mib": (ours["arena_peak_bytes"] / 2**20).to_numpy(),
            "step_seconds": ours["step_seconds"].to_numpy(),
        }
    ).sort_values(["hidden", "slices"], ignore_index=True)


def _link(keys: dict[str, str]) -> str:
    """As asked for: a simulated point has none of its own."""
    rate = float(keys.get("communication.emulated_link.gbit_per_s", "0"))
    return f"emulated link, {rate:g} Gbit/s" if rate else WITHOUT_LINK


def against_whole(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """By hidden size and slices: `value` over that of the operator in one piece, where both ended well."""
    table = style.good(rows).pivot_table(index="hidden", columns="slices", values=value, aggfunc="first")
    if 0 not in table:
        return table.iloc[:0]
    return table.div(table[0], axis=0).drop(columns=0).dropna(how="all")


def memory_in_words(rows: pd.DataFrame) -> str:
    """Beside the paper's statement. Sizes that run only in slices have no reduction, and are named."""
    printed = published("osdp", "figure_7")["saved"].max()
    ratios = against_whole(rows, "memory_mib")
    too_large = style.failed(rows)[lambda failed: failed["slices"] == 0]
    only_cut = sorted(set(style.good(rows)["hidden"]) & set(too_large["hidden"]))
    words = f"peak falls by up to {100 * (1 - ratios.min().min()):.0f} %" if not ratios.empty else "no ratio"
    words += f"\npaper: by up to {100 * printed:.0f} %"
    return words + "".join(f"\nh = {hidden} runs only in slices" for hidden in only_cut)


def time_in_words(rows: pd.DataFrame) -> str:
    """What the most slices cost, for the smallest and the largest operator that runs in one piece too.

    The paper prints no time; it says that small operators take longer the more slices there are.
    """
    ratios = against_whole(rows, "step_seconds")
    if ratios.empty:
        return "no ratio"
    most = ratios.columns.max()
    words = [f"{ratios.loc[hidden, most]:.2f} at h = {hidden}" for hidden in (ratios.index.min(), ratios.index.max())]
    return f"{most} slices over none: " + ", ".join(dict.fromkeys(words))


def _slices(rows: pd.DataFrame) -> list[int]:
    return sorted(set(rows["slices"]))


def _sizes(rows: pd.DataFrame) -> list[int]:
    return sorted(set(rows["hidden"]))


def _colour(rows: pd.DataFrame, hidden: int) -> str:
    return COLOURS[_sizes(rows).index(hidden) % len(COLOURS)]


def _lines(axes: Axes, rows: pd.DataFrame, link: str, value: str, name: str) -> None:
    places = {count: place for place, count in enumerate(_slices(rows))}
    for hidden in _sizes(rows):
        line = style.good(rows[(rows["hidden"] == hidden) & (rows["link"] == link)])
        dashed = {"linestyle": "--", "markerfacecolor": "none"} if line["simulated"].any() else {}
        axes.plot(
            line["slices"].map(places),
            line[value],
            marker="o",
            color=_colour(rows, hidden),
            gid=f"{name}/{hidden}",
            **dashed,
        )


def _cross(axes: Axes, rows: pd.DataFrame, row: pd.Series) -> None:
    """At the upper edge, where a bar would be that does not fit."""
    axes.plot(
        [_slices(rows).index(row["slices"])],
        [0.97],
        marker="x",
        linestyle="none",
        color=_colour(rows, row["hidden"]),
        transform=axes.get_xaxis_transform(),
        gid=f"failed/{row['link']}/{row['hidden']}/{row['slices']}",
    )
