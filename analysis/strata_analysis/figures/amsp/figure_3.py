"""AMSP's figure 3, effective bandwidth v / t of collectives over message size, and 2 (c), their time at 256 MiB.

The paper draws both and prints no numbers. Times are those of the instructions on the one weight of each point.
"""

from __future__ import annotations

import math

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures.amsp.over_ranks import gpu_axis
from strata_analysis.load import INDEX, Results
from strata_analysis.series import keys_of

EXPERIMENT = "amsp_figure_3"
COLLECTIVES = {"all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "all_reduce": "AllReduce"}
COLOURS = {"all_gather": "#0072B2", "reduce_scatter": "#D55E00", "all_reduce": "#009E73"}
MIB = 2**20
BYTES_PER_ELEMENT = 2  # bf16
LATENCY_MIB = 256


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `bandwidth/<collective>/<GPUs>`, GB/s over MiB, and `time/<collective>`, ms over GPUs."""
    times = collective_times(results, points)
    if times.empty:
        return "no recorded collective: measure.timeline_steps"
    return {"bandwidth": _bandwidth(times), "2c-latency": _latency(times)}


def collective_times(results: Results, points: pd.DataFrame) -> pd.DataFrame:
    """collective, ranks, mib (of the whole weight), seconds: one row a point and collective."""
    rows = []
    events = dict(tuple(results.events.groupby(INDEX)))
    for _, point in points[points["experiment_name"] == EXPERIMENT].iterrows():
        of_point = events.get(tuple(point[name] for name in INDEX))
        if of_point is None:
            continue
        sizes = [int(word) for word in keys_of(point)["model.widths"].strip("[]").split(",")]
        mib = math.prod(sizes) * BYTES_PER_ELEMENT / MIB
        for collective in COLLECTIVES:
            # Beside the weight there are its bias and the loss: the weight's takes longest.
            seconds = (of_point["end_seconds"] - of_point["begin_seconds"])[
                of_point["name"].str.startswith(f"{collective} ") & ~of_point["name"].str.endswith(" loss")
            ]
            if not seconds.empty:
                rows.append((collective, int(point["num_ranks"]), mib, seconds.max()))
    return pd.DataFrame(rows, columns=["collective", "ranks", "mib", "seconds"])


def _bandwidth(times: pd.DataFrame) -> Figure:
    figure, all_axes = pyplot.subplots(1, len(COLLECTIVES), figsize=(7.2, 2.7), sharey=True)
    shades = pyplot.get_cmap("viridis")
    counts = sorted(set(times["ranks"]))
    for axes, (collective, name) in zip(all_axes, COLLECTIVES.items(), strict=True):
        for number, ranks in enumerate(counts):
            line = times[(times["collective"] == collective) & (times["ranks"] == ranks)].sort_values("mib")
            axes.plot(
                line["mib"],
                line["mib"] * MIB / line["seconds"] / 1e9,
                "--",
                marker="o",
                markerfacecolor="none",
                color=shades(number / len(counts)),
                label=f"8x{ranks // 8}",
                gid=f"bandwidth/{collective}/{ranks}",
            )
        axes.set_xscale("log", base=2)
        axes.set_xlabel("message, MiB")
        axes.set_title(name)
    all_axes[0].set_ylabel("effective bandwidth, GB/s")
    figure.suptitle(
        "AMSP figure 3: effective bandwidth v / t of collectives, simulated (GPUs a node x nodes)", fontsize=8
    )
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return figure


def _latency(times: pd.DataFrame) -> Figure:
    figure, axes = pyplot.subplots(figsize=(3.5, 2.6))
    for collective, name in COLLECTIVES.items():
        line = times[(times["collective"] == collective) & (times["mib"] == LATENCY_MIB)].sort_values("ranks")
        axes.plot(
            line["ranks"],
            1e3 * line["seconds"],
            "--",
            marker="o",
            markerfacecolor="none",
            color=COLOURS[collective],
            label=name,
            gid=f"time/{collective}",
        )
    gpu_axis(axes, times["ranks"])
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("ms")
    axes.set_title(f"AMSP figure 2 (c): collectives of {LATENCY_MIB} MiB, simulated")
    axes.legend()
    return figure
