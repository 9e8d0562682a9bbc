"""AMSP's figure 17: tokens a second and GPU with its factors and with MiCS's in one engine."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.amsp.over_ranks import panels
from strata_analysis.load import Results
from strata_analysis.published.amsp import of_figure_16

EXPERIMENT = "amsp_figure_16"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    title = "AMSP figure 17: tokens a second and GPU with AMSP's factors and with MiCS's in one engine, simulated"
    return {"tgs": panels(of_figure_16(points), "tgs", "tokens a second and GPU", title)}
