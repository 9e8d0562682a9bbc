"""OSDP's figure 9: throughput of OSDP and FSDP with checkpointing on 8 GPUs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.osdp.throughput import panels
from strata_analysis.load import Results
from strata_analysis.published.osdp import cells

EXPERIMENT = "osdp_figure_9"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    title = "OSDP figure 9: throughput with checkpointing on 8 GPUs, simulated"
    return {"checkpointing": panels(cells(points, EXPERIMENT), title)}
