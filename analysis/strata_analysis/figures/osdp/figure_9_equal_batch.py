"""Beside OSDP's figure 9: throughput of OSDP and FSDP with the same batch, the one at which FSDP is fastest."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.osdp.throughput import panels
from strata_analysis.load import Results
from strata_analysis.published.osdp import at_equal_batch, tried

EXPERIMENT = "osdp_figure_9_equal_batch"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    rows = at_equal_batch(tried(points, EXPERIMENT))
    if rows.empty:
        return "FSDP runs nowhere"
    return {
        "throughput": panels(
            rows, "OSDP and FSDP with checkpointing on 8 GPUs, both at FSDP's fastest batch, simulated"
        )
    }
