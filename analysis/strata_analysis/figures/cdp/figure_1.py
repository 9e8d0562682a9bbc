"""CDP's figure 1: who computes what when, simultaneous and cyclic, over some steps of a run or a simulation."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures import schedule
from strata_analysis.figures.schedule import COMPUTE_STREAM, Box
from strata_analysis.load import INDEX, Results

EXPERIMENT = "cdp_figure_1"
PASSES = ("forward", "backward", "update")
SMALLEST_GAP = 0.02  # of a step: what is shorter between kernels of a pass is not drawn as idle


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: see schedule.draw_rows. A point a figure."""
    figures = {}
    for _, point in points[(points["experiment_name"] == EXPERIMENT) & (points["status"] == "ok")].iterrows():
        events = results.events
        for key in INDEX:
            events = events[events[key] == point[key]]
        if events.empty:
            continue
        rows = rows_of(events, int(point["num_ranks"]), 1e3 * point["step_seconds"])
        kind = "simulated" if point["simulated"] else "measured"
        title = f"CDP figure 1: {point['strategy_name']} on {point['num_ranks']} ranks, {kind}"
        below = "ms; numbers are micro-batches, every other training step is paler"
        figures[point["strategy_name"]] = schedule.draw_rows(rows, below, title)
    return figures or "no recorded events: measure.timeline_steps"


def rows_of(events: pd.DataFrame, num_ranks: int, step_ms: float) -> dict[str, list[Box]]:
    """By rank its passes and updates of all recorded steps, in milliseconds since the first kernel of one.

    Of a simulation one rank stands for those that do the same.
    """
    first = events["step"].min()
    recorded = sorted(set(events["rank"]))
    kernels = events[(events["stream"] == COMPUTE_STREAM) & events["phase"].isin(PASSES)]
    begins, ends = (1e3 * (kernels["step_begin_seconds"] + kernels[f"{end}_seconds"]) for end in ("begin", "end"))
    kernels = kernels.assign(begin=begins - begins.min(), end=ends - begins.min()).sort_values("begin")
    rows = {}
    for rank in recorded:
        row: list[Box] = []
        for kernel in kernels[kernels["rank"] == rank].itertuples(index=False):
            box = Box(kernel.phase, kernel.micro_batch, kernel.begin, kernel.end, kernel.step - first)
            schedule.add(row, box, SMALLEST_GAP * step_ms)
        stands_for_all = len(recorded) == 1 and num_ranks > 1
        rows[f"0 to {num_ranks - 1}" if stands_for_all else str(rank)] = row
    return rows
