"""AMSP's figure 12: tokens a second and GPU. The paper prints none: its marks here follow from its MFU."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.amsp.over_ranks import panels
from strata_analysis.load import Results
from strata_analysis.published import published
from strata_analysis.published.amsp import of_experiment

EXPERIMENT = "amsp_figure_11"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    ours = of_experiment(points, EXPERIMENT)
    # Tokens a second and GPU at an MFU of one, by model.
    full = (ours["tgs"] / ours["mfu"]).groupby(ours["model"]).mean()
    printed = published("amsp", "figure_11")
    printed = printed[printed["model"].isin(full.index)]
    printed = printed.assign(tgs=printed["mfu"] * printed["model"].map(full))
    figure = panels(
        ours,
        "tgs",
        "tokens a second and GPU",
        "AMSP figure 12: tokens a second and GPU, simulated",
        printed,
        printed_label="paper, from its MFU",
    )
    return {"tgs": figure}
