"""Beside OSDP's figure 5: throughput of OSDP and FSDP with one sample a GPU, where memory cannot buy a larger batch."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.osdp.throughput import panels
from strata_analysis.load import Results
from strata_analysis.published.osdp import cells

EXPERIMENT = "osdp_figure_5_one_sample"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    return {"throughput": panels(cells(points, EXPERIMENT), "OSDP and FSDP on 8 GPUs, one sample each, simulated")}
