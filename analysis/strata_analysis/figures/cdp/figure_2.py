"""What CDP's figure 2 draws of each implementation: what every device holds, here in bytes over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from strata_analysis.figures import style
from strata_analysis.figures.memory_by_category import PARTS
from strata_analysis.load import INDEX, Results
from strata_analysis.memory_over_time import CATEGORIES
from strata_analysis.published.cdp import ROWS, implementations, of_experiment

EXPERIMENT = "cdp_table_1"
MIB = 2**20
LEFT_OUT = ("cdp-v1",)  # as v2 but for versions of parameters
ROW_INCHES = 0.95


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `held/<category>/<strategy>[ <implementation>]/<rank>` on areas, stacked in the order of CATEGORIES."""
    ours = of_experiment(points, EXPERIMENT)
    ours = ours[~ours["strategy_name"].isin(LEFT_OUT)]
    memory = dict(tuple(results.memory.groupby(INDEX))) if len(results.memory) else {}
    rows = []
    for (_, point), implementation in zip(ours.iterrows(), implementations(ours), strict=True):
        of_point = memory.get(tuple(point[key] for key in INDEX))
        if of_point is not None:
            name = f"{point['strategy_name']} {implementation}".strip()
            rows.append((name, point, dict(tuple(of_point.groupby("rank")))))
    if not rows:
        return "no recorded memory: measure.timeline_steps"
    as_in_the_table = [f"{strategy} {implementation}".strip() for _, _, strategy, implementation in ROWS]
    rows.sort(key=lambda row: as_in_the_table.index(row[0]))
    columns = max(len(of_ranks) for _, _, of_ranks in rows)
    figure, all_axes = pyplot.subplots(
        len(rows),
        columns,
        figsize=(style.PAGE_INCHES, ROW_INCHES * len(rows) + 0.6),
        squeeze=False,
        sharey="row",
    )
    for axes_of_row, (name, point, of_ranks) in zip(all_axes, rows, strict=True):
        for axes, rank in zip(axes_of_row, sorted(of_ranks), strict=False):
            _areas(axes, of_ranks[rank], f"{name}/{rank}")
            stands_for_all = len(of_ranks) == 1 and point["num_ranks"] > 1
            whose = f"ranks 0 to {point['num_ranks'] - 1}" if stands_for_all else f"rank {rank}"
            axes.set_title(whose, fontsize=6)
        for axes in axes_of_row[len(of_ranks) :]:
            axes.set_visible(False)
        axes_of_row[0].set_ylabel(f"{name}\nMiB", fontsize=6)
    kind = "simulated" if all(point["simulated"] for _, point, _ in rows) else "measured"
    figure.suptitle(f"CDP figure 2: what a device holds, ms, {kind}", fontsize=8)
    handles = [Patch(color=PARTS[f"{name}_bytes"][1], label=PARTS[f"{name}_bytes"][0]) for name in CATEGORIES]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return {"held": figure}


def _areas(axes: Axes, rows: pd.DataFrame, series: str) -> None:
    milliseconds = 1e3 * rows["seconds"].to_numpy()
    below = np.zeros(len(rows))
    for name in CATEGORIES:
        above = below + rows[f"{name}_bytes"].to_numpy() / MIB
        colour = PARTS[f"{name}_bytes"][1]
        axes.fill_between(
            milliseconds, below, above, step="post", color=colour, linewidth=0, gid=f"held/{name}/{series}"
        )
        below = above
    axes.set_xlim(milliseconds[0], milliseconds[-1])
    axes.set_ylim(0)
    axes.tick_params(labelsize=5)
