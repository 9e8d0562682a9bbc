"""AMSP's figure 11: MFU of AMSP and its baselines on 8 to 1024 GPUs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.amsp.over_ranks import panels
from strata_analysis.load import Results
from strata_analysis.published import errors_in_words, published
from strata_analysis.published.amsp import figure_11, of_experiment, ranking_in_words

EXPERIMENT = "amsp_figure_11"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    rows = figure_11(points).rows
    words = {}
    for model, members in rows.groupby("model"):
        largest = members[members["ranks"] == members["ranks"].max()]
        words[model] = f"1024 GPUs: {ranking_in_words(largest).split(' (')[0]}; {errors_in_words(members)}"
    figure = panels(
        of_experiment(points, EXPERIMENT),
        "mfu",
        "MFU, % of 312 TFLOP/s",
        "AMSP figure 11: MFU, simulated, with the numbers that the paper prints",
        published("amsp", "figure_11"),
        words,
        scale=100.0,
    )
    return {"mfu": figure}
