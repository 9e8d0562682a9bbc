"""OSDP's figure 5: throughput of all strategies on 8 GPUs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.osdp.throughput import panels
from strata_analysis.load import Results
from strata_analysis.published.osdp import cells

EXPERIMENT = "osdp_figure_5"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    return {"throughput": panels(cells(points, EXPERIMENT), "OSDP figure 5: throughput on 8 GPUs, simulated")}
