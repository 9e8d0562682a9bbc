"""AMSP's figure 16: MFU with its factors and with MiCS's in one engine."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.amsp.over_ranks import panels
from strata_analysis.load import Results
from strata_analysis.published.amsp import figure_16, of_figure_16

EXPERIMENT = "amsp_figure_16"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    words = {
        row.model: f"AMSP over MiCS at 1024: paper {row.paper:.2f}, simulated {row.simulated:.2f}"
        for row in figure_16(points).rows.itertuples(index=False)
    }
    title = "AMSP figure 16: MFU with AMSP's factors and with MiCS's in one engine, simulated"
    return {"mfu": panels(of_figure_16(points), "mfu", "MFU, % of 312 TFLOP/s", title, words=words, scale=100.0)}
