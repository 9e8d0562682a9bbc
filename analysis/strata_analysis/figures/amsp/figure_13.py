"""AMSP's figure 13: peak memory of AMSP and its baselines on 8 to 1024 GPUs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.amsp.over_ranks import panels
from strata_analysis.load import Results
from strata_analysis.published import published
from strata_analysis.published.amsp import of_experiment

EXPERIMENT = "amsp_figure_11"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    figure = panels(
        of_experiment(points, EXPERIMENT),
        "memory_gib",
        "peak memory, GiB",
        "AMSP figure 13: peak memory of the fullest GPU, simulated, with what its runtime keeps",
        published("amsp", "figure_13"),
    )
    return {"memory": figure}
