"""AMSP's traces as pictures of the simulated steps' streams: figures 18-20 a model, 14 and 15 as details of them.

Figure 14 is the last micro-batch's backward pass of DeepSpeed's baselines on 7B, figure 15 AMSP's step of each model.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from strata_analysis.figures.amsp.over_ranks import NAMES
from strata_analysis.load import INDEX, Results
from strata_analysis.published.amsp import MODELS

EXPERIMENT = "amsp_figure_18"
FIGURES = dict(zip(MODELS, (18, 19, 20), strict=True))
STRATEGIES = ("zero3", "mics", "zeropp", "amsp")
COLOURS = {
    "forward": "#74A9CF",
    "backward": "#2B8CBE",
    "optimizer": "#045A8D",
    "all_gather": "#E69F00",
    "reduce_scatter": "#D55E00",
    "all_reduce": "#CC79A7",
    "broadcast": "#009E73",
}
OPTIMIZER_KERNELS = ("adam", "sgd")


def kind_of(name: str) -> str:
    """What an instruction `<kernel or collective> <of what>` is, in the words of COLOURS."""
    word = name.split(" ", 1)[0]
    if word in COLOURS:
        return word
    if word.startswith(OPTIMIZER_KERNELS):
        return "optimizer"
    return "backward" if "backward" in word else "forward"


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `<kind>/<model>/<strategy>` on what is drawn of one kind."""
    timelines = _timelines(results, points)
    if not timelines:
        return "no recorded events: measure.timeline_steps"
    figures = {}
    for model, number in FIGURES.items():
        shown = [(model, strategy) for strategy in STRATEGIES if (model, strategy) in timelines]
        if shown:
            figures[f"{number}-{model}"] = _figure(f"AMSP figure {number}: a step of {model}", timelines, shown)
    shown = [("llama-7b", strategy) for strategy in STRATEGIES[:3] if ("llama-7b", strategy) in timelines]
    if shown:
        details = {key: last_backward(timelines[key]) for key in shown}
        figures["14-llama-7b"] = _figure("AMSP figure 14: backward of the last micro-batch", details, shown)
    shown = [(model, "amsp") for model in MODELS if (model, "amsp") in timelines]
    if shown:
        figures["15-amsp"] = _figure("AMSP figure 15: steps of AMSP", timelines, shown)
    return figures


def _timelines(results: Results, points: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Events of one rank in the last recorded step, times from its begin: by model and strategy."""
    events = dict(tuple(results.events.groupby(INDEX)))
    found = {}
    for _, point in points[points["experiment_name"] == EXPERIMENT].iterrows():
        rows = events.get(tuple(point[name] for name in INDEX))
        if rows is None:
            continue
        rows = rows[(rows["step"] == rows["step"].max()) & (rows["rank"] == rows["rank"].min())].copy()
        rows["kind"] = rows["name"].map(kind_of)
        found[point["model_name"], point["strategy_name"]] = rows
    return found


def last_backward(rows: pd.DataFrame) -> pd.DataFrame:
    """From the last micro-batch's loss to the first update of the optimizer."""
    begin = rows.loc[rows["name"].str.startswith("cross_entropy"), "begin_seconds"].max()
    end = rows.loc[rows["kind"] == "optimizer", "begin_seconds"].min()
    return rows[(rows["begin_seconds"] > begin) & (rows["begin_seconds"] < end)]


def _figure(title: str, timelines: dict[tuple[str, str], pd.DataFrame], shown: Sequence[tuple[str, str]]) -> Figure:
    models = {model for model, _ in shown}
    figure, all_axes = pyplot.subplots(
        len(shown), 1, figsize=(7.2, 0.75 + 0.85 * len(shown)), squeeze=False, sharex=len(models) == 1
    )
    kinds = set()
    for axes, key in zip(all_axes[:, 0], shown, strict=True):
        kinds |= _streams(axes, timelines[key], "/".join(key))
        axes.set_title(
            f"{NAMES[key[1]]}, {key[0]}" if len(models) > 1 else NAMES[key[1]], fontsize=7, loc="left", pad=2
        )
    all_axes[-1, 0].set_xlabel("ms")
    figure.suptitle(f"{title}, streams of one GPU, simulated", fontsize=8)
    handles = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items() if kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _streams(axes: Axes, rows: pd.DataFrame, name: str) -> set[str]:
    """A band a stream; a kind is one collection, thousands of instructions."""
    streams = sorted(set(rows["stream"]))
    origin = rows["begin_seconds"].min()
    for kind, colour in COLOURS.items():
        of_kind = rows[rows["kind"] == kind]
        for stream in streams:
            of_stream = of_kind[of_kind["stream"] == stream]
            if of_stream.empty:
                continue
            begin = 1e3 * (of_stream["begin_seconds"] - origin)
            width = 1e3 * (of_stream["end_seconds"] - of_stream["begin_seconds"])
            bars = axes.broken_barh(
                list(zip(begin, width, strict=True)), (-streams.index(stream) - 0.4, 0.8), color=colour, linewidth=0
            )
            bars.set_gid(f"{kind}/{name}")
    labels = ["compute" if stream == 0 else "communication" for stream in streams]
    axes.set_yticks([-place for place in range(len(streams))], labels, fontsize=6)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.005)
    return set(rows["kind"])
