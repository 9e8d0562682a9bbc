"""The common part of strong and weak scaling: rate over ranks, with the ideal line from the smallest run."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.derive import base_of
from strata_analysis.figures import style
from strata_analysis.series import series_of


def draw_scaling(points: pd.DataFrame, constant: pd.Series, kind: str) -> dict[str, Figure]:
    """One figure a model. `constant` holds, for each point, what must be equal along a series.

    gids: `rate/<series>` for the line, `ideal/<series>`.
    """
    figures = {}
    for model, members in points.groupby("model_name"):
        series = [
            (f"{label}, {_batch(group)}" if _many(members, constant) else label, group)
            for _, same in members.groupby(constant.loc[members.index])
            for label, group in series_of(same)
            if style.good(group)["num_ranks"].nunique() > 1
        ]
        if series:
            figures[str(model)] = _figure(str(model), members, series, kind)
    return figures


def _many(members: pd.DataFrame, constant: pd.Series) -> bool:
    return constant.loc[members.index].nunique() > 1


def _batch(group: pd.DataFrame) -> str:
    first = group.iloc[0]
    return f"{first['num_sequences_per_step']} a step on {first['num_ranks']}"


def _ranks(point: pd.Series) -> str:
    return "1 rank" if point["num_ranks"] == 1 else f"{point['num_ranks']} ranks"


def _figure(model: str, members: pd.DataFrame, series: list, kind: str) -> Figure:
    figure, axes = pyplot.subplots()
    for number, (label, group) in enumerate(series):
        good = style.good(group)
        base = base_of(group)
        base_rate = style.number(base["samples_per_second"])
        axes.errorbar(
            good["num_ranks"],
            good["samples_per_second"],
            yerr=style.intervals(good, "samples_per_second"),
            capsize=2,
            label=f"{label}; 100 % = {base_rate} {base['sample_unit']}s/s on {_ranks(base)}",
            **style.line_style(group.iloc[0], number),
        )
        axes.containers[-1].lines[0].set_gid(f"rate/{label}")
        ideal = base["samples_per_second"] * good["num_ranks"] / base["num_ranks"]
        axes.plot(good["num_ranks"], ideal, ":", color="0.5", linewidth=0.8, gid=f"ideal/{label}")
        for _, point in good.iterrows():
            efficiency = (
                point["samples_per_second"] * base["num_ranks"] / (base["samples_per_second"] * point["num_ranks"])
            )
            if point["num_ranks"] != base["num_ranks"] and len(series) <= 2:  # more would cover each other
                axes.annotate(
                    f"{100 * efficiency:.0f} %",
                    (point["num_ranks"], point["samples_per_second"]),
                    xytext=(0, -9),
                    textcoords="offset points",
                    ha="center",
                    fontsize=6,
                )
    axes.set_yscale("log", base=2)
    style.rank_axis(axes, members)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.4, high * 1.1)
    axes.yaxis.set_major_formatter(lambda value, _: style.number(value))
    axes.set_ylabel(f"{members.iloc[0]['sample_unit']}s a second")
    style.mark_disturbed(axes, members, "samples_per_second")
    style.mark_failures(axes, members)
    style.titled(figure, axes, f"{model}: {kind} scaling (dotted: ideal)")
    return figure
