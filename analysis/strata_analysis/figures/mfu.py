"""Model FLOP utilisation over ranks. One figure a model and convention: two conventions are never mixed."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis import peaks
from strata_analysis.figures import style
from strata_analysis.load import Results
from strata_analysis.series import series_of


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `mfu/<series>`."""
    figures = {}
    for (model, convention), members in points.groupby(["model_name", "flop_convention"]):
        if members["mfu"].notna().any():
            figures[f"{model}-{convention}"] = _figure(str(model), str(convention), members)
    return figures or "no point has a measured step and a peak"


def _figure(model: str, convention: str, members: pd.DataFrame) -> Figure:
    figure, axes = pyplot.subplots()
    for number, (label, group) in enumerate(series_of(members)):
        good = style.good(group)
        if good.empty:
            continue
        low, high = style.intervals(good, "mfu")
        axes.errorbar(
            good["num_ranks"],
            100 * good["mfu"],
            yerr=[100 * low, 100 * high],
            capsize=2,
            label=label,
            **style.line_style(group.iloc[0], number),
        )
        axes.containers[-1].lines[0].set_gid(f"mfu/{label}")
    axes.set_ylim(0, max(100.0, axes.get_ylim()[1]))
    style.rank_axis(axes, members)
    axes.set_ylabel(f"MFU, % ({convention} convention)")
    style.mark_disturbed(axes, members, "mfu", 100.0)
    style.mark_failures(axes, members)
    of = "; ".join(peaks.in_words(members[members["mfu"].notna()]))
    style.titled(figure, axes, f"{model}: model FLOP utilisation\nof {of}")
    return figure
