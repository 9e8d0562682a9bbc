"""CDP's figure 4: activation memory a worker over a training step, of workers at once and one after the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures import style
from strata_analysis.load import Results
from strata_analysis.memory_over_time import Curve, mean_of_workers, one_step
from strata_analysis.published.cdp import MEMORY, WORKERS, of_experiment

EXPERIMENT = "cdp_figure_4"
METRIC = "all but parameters and optimizer states"  # what the paper takes for activations
GIB = 2**30
COLOURS = {4: "#9ECAE1", 8: "#4292C6", 32: "#08306B"}


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `memory/<model>/simultaneous`, `memory/<model>/<workers>` on lines, GiB over the share of a step."""
    found = []
    for _, point in of_experiment(points, EXPERIMENT).iterrows():
        curve = one_step(results, point, MEMORY[METRIC])
        if curve is not None:
            found.append((point, curve))
    if not found:
        return "no point with exactly one recorded step: measure.timeline_steps = 1"
    figure, all_axes = pyplot.subplots(
        1, len(found), figsize=(style.COLUMN_INCHES * min(2, len(found)), style.HEIGHT_INCHES), squeeze=False
    )
    for axes, (point, curve) in zip(all_axes[0], found, strict=True):
        model, peak = point["model_name"], curve.values.max()
        axes.step(*_steps(curve), where="post", color="black", linewidth=0.8, gid=f"memory/{model}/simultaneous")
        words = []
        for workers in WORKERS:
            mean = mean_of_workers(curve, workers)
            axes.step(
                *_steps(mean),
                where="post",
                color=COLOURS[workers],
                linewidth=0.9,
                linestyle="--",
                gid=f"memory/{model}/{workers}",
            )
            words.append(f"{100 * (1 - mean.values.max() / peak):.0f} %")
        axes.axhline(peak / 2 / GIB, color="black", linewidth=0.5, linestyle=":")
        kind = "simulated" if point["simulated"] else "measured"
        axes.set_title(f"{model}, {kind}\npeak lower by {', '.join(words)}", fontsize=7)
        axes.set_xlabel("share of a training step")
        axes.set_ylim(0)
        axes.set_xlim(0, 1)
    all_axes[0][0].set_ylabel("GiB a worker, without\nparameters and states")
    figure.suptitle("CDP figure 4: copies of one worker's step, one after the other", fontsize=8)
    handles = [pyplot.Line2D([], [], color="black", label="simultaneous")]
    handles += [pyplot.Line2D([], [], color=COLOURS[n], linestyle="--", label=f"cyclic, {n} workers") for n in WORKERS]
    handles.append(pyplot.Line2D([], [], color="black", linestyle=":", label="half the peak"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return {"memory": figure}


def _steps(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Shares of a step and GiB, to its end."""
    shares = np.append(curve.seconds, curve.end) / curve.end
    return shares, np.append(curve.values, curve.values[-1]) / GIB
