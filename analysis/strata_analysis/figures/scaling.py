"""The common part of strong and weak scaling: rate over ranks, with the ideal line from the smallest run."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis.derive import base_of
from strata_analysis.figures import over_ranks, style
from strata_analysis.figures.over_ranks import Line, Quantity
from strata_analysis.series import series_of


def draw_scaling(points: pd.DataFrame, constant: pd.Series, kind: str) -> dict[str, Figure]:
    """One figure a model. `constant` holds, for each point, what must be equal along a series.

    gids: `rate/<series>` for the line, `ideal/<series>`.
    """
    figures = {}
    for model, members in points.groupby("model_name"):
        lines = [
            Line(f"{label}, {_batch(group)}" if _many(members, constant) else label, group, _base_words(group))
            for _, same in members.groupby(constant.loc[members.index])
            for label, group in series_of(same)
            if style.good(group)["num_ranks"].nunique() > 1
        ]
        if lines:
            rate = Quantity("samples_per_second", 1.0, "rate", f"{members.iloc[0]['sample_unit']}s a second")
            title = f"{style.about(str(model), members)}: {kind} scaling (dotted: ideal)"
            figures[str(model)] = over_ranks.draw(title, lines, rate, _add_ideal)
    return figures


def _many(members: pd.DataFrame, constant: pd.Series) -> bool:
    return constant.loc[members.index].nunique() > 1


def _batch(group: pd.DataFrame) -> str:
    first = group.iloc[0]
    return f"{first['num_sequences_per_step']} a step on {first['num_ranks']}"


def _base_words(group: pd.DataFrame) -> str:
    base = base_of(group)
    ranks = "1 rank" if base["num_ranks"] == 1 else f"{base['num_ranks']} ranks"
    return f"100 % = {style.number(base['samples_per_second'])} {base['sample_unit']}s/s on {ranks}"


def _add_ideal(axes: Axes, lines: list[Line]) -> None:
    for line in lines:
        good, base = style.good(line.points), base_of(line.points)
        ideal = base["samples_per_second"] * good["num_ranks"] / base["num_ranks"]
        axes.plot(good["num_ranks"], ideal, ":", color="0.5", linewidth=0.8, gid=f"ideal/{line.label}")
        if len(lines) == 1:  # the words of more would cover each other
            _say_efficiency(axes, good[good["num_ranks"] != base["num_ranks"]], base)
    axes.set_yscale("log", base=2)
    axes.relim()
    axes.autoscale(axis="y")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.4, high * 1.1)
    axes.yaxis.set_major_formatter(lambda value, _: style.number(value))


def _say_efficiency(axes: Axes, points: pd.DataFrame, base: pd.Series) -> None:
    for _, point in points.iterrows():
        efficiency = point["samples_per_second"] * base["num_ranks"] / (base["samples_per_second"] * point["num_ranks"])
        axes.annotate(
            f"{100 * efficiency:.0f} %",
            (point["num_ranks"], point["samples_per_second"]),
            xytext=(0, -9),
            textcoords="offset points",
            ha="center",
            fontsize=6,
        )
