"""AMSP's figure 2 (a) and (b): model states and compute of 7B under ZeRO on 8 to 512 GPUs. The paper prints no numbers.

Panel (c), the time of a collective of 256 MiB, is drawn from figure 3's results.
"""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures import style
from strata_analysis.figures.amsp.over_ranks import NAMES, gpu_axis
from strata_analysis.load import INDEX, Results

EXPERIMENT = "amsp_figure_2"
STATES = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `states/<strategy>`, GiB at the moment of the peak, and `compute/<strategy>`, seconds a step."""
    ours = points[(points["experiment_name"] == EXPERIMENT) & (points["status"] == "ok")]
    by_attempt = results.steps.groupby(INDEX)[list(STATES)].max().sum(axis=1)
    states = [by_attempt[tuple(point[name] for name in INDEX)] / 2**30 for _, point in ours.iterrows()]
    ours = ours.assign(states_gib=states)
    figure, (memory, compute) = pyplot.subplots(1, 2, figsize=(5.4, 2.7))
    for strategy, line in ours.groupby("strategy_name"):
        line = line.sort_values("num_ranks")
        look = {"marker": "o", "markerfacecolor": "none", "color": style.colour(strategy), "label": NAMES[strategy]}
        memory.plot(line["num_ranks"], line["states_gib"], "--", gid=f"states/{strategy}", **look)
        compute.plot(line["num_ranks"], line["compute_seconds"], "--", gid=f"compute/{strategy}", **look)
    memory.set_ylabel("parameters, gradients,\noptimizer states, GiB")
    memory.set_ylim(bottom=0.0)
    compute.set_ylabel("compute of a step, s")
    compute.set_yscale("log", base=2)
    compute.yaxis.set_major_formatter(lambda value, _: style.number(value))
    for axes, name in ((memory, "(a)"), (compute, "(b)")):
        gpu_axis(axes, ours["num_ranks"])
        axes.set_title(name)
    figure.suptitle("AMSP figure 2: LLaMA-7B, 4 Mi tokens a step, simulated", fontsize=8)
    handles, labels = memory.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return {"states": figure}
