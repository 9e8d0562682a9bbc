"""OSDP's figure 8: throughput with and without operator splitting on 8 GPUs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.osdp.throughput import panels
from strata_analysis.load import Results
from strata_analysis.published.osdp import cells

EXPERIMENT = "osdp_figure_5"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    rows = cells(points, EXPERIMENT)
    rows = rows[rows["strategy"].isin(["osdp-base", "osdp"])]
    return {"splitting": panels(rows, "OSDP figure 8: throughput without and with slices on 8 GPUs, simulated")}
