"""Oases' figure 4: throughput of Oases and its baselines over the best of these, a panel a cluster."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from strata_analysis.figures import bars, style
from strata_analysis.load import Results
from strata_analysis.published import published
from strata_analysis.published.oases import NAMES, figure_4_throughputs

EXPERIMENT = "oases_figure_4"
PRINTED_COLOUR = "0.85"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `speedup/<cluster>/<model>/<strategy>` on bars, `printed/<cluster>` on the band that the paper prints."""
    rows = figure_4_throughputs(points)
    rows = rows[rows["oases"].notna() & rows["best baseline"].notna()]
    if rows.empty:
        return "no model has Oases and a baseline"
    strategies = [name for name in NAMES if name in rows]
    clusters = list(dict.fromkeys(rows["cluster"]))
    figure, all_axes = pyplot.subplots(
        1, len(clusters), figsize=(style.PAGE_INCHES, style.HEIGHT_INCHES), sharey=True, squeeze=False
    )
    for axes, cluster in zip(all_axes[0], clusters, strict=True):
        _groups(axes, rows[rows["cluster"] == cluster], strategies, cluster)
        axes.set_title(cluster)
    all_axes[0][0].set_ylabel("over the best baseline")
    figure.suptitle("Oases figure 4: 32 RTX 3090, simulated, and what the paper prints of Oases", fontsize=8)
    handles = [bars.key_of_simulated(style.colour(name), NAMES[name]) for name in strategies]
    handles.append(Patch(facecolor=PRINTED_COLOUR, label="Oases, printed: least to most"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return {"speedup": figure}


def _groups(axes: Axes, rows: pd.DataFrame, strategies: list[str], cluster: str) -> None:
    printed = published("oases", "figure_4").query("cluster == @cluster and over == 'best baseline'")
    bounds = printed.set_index("bound")["speedup"]
    axes.axhspan(bounds["least"], bounds["most"], color=PRINTED_COLOUR, zorder=0, gid=f"printed/{cluster}")
    axes.axhline(1.0, color="0.3", linewidth=0.6)
    rows = rows.sort_values("model", key=lambda models: models.str.extract(r"(\d+)", expand=False).astype(int))
    for group, row in enumerate(rows.to_dict("records")):
        for number, strategy in enumerate(strategies):
            place, room = bars.place_in_group(group, number, len(strategies))
            name = f"{cluster}/{row['model']}/{strategy}"
            if pd.isna(row[strategy]):
                bars.say_missing(axes, place, "none", f"failed/{name}")
                continue
            height = row[strategy] / row["best baseline"]
            bars.single(axes, place, height, 0.9 * room, style.colour(strategy), True, f"speedup/{name}")
    axes.set_xticks(range(len(rows)), [model.removeprefix("oases-") for model in rows["model"]])
    axes.set_xlabel("width of the model")
    axes.grid(axis="x", visible=False)
