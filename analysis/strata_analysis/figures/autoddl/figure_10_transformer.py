"""AutoDDL's figure 10: transformers on two servers with 16 GPUs each."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.autoddl.step_time import panels
from strata_analysis.load import Results
from strata_analysis.published.autoddl import cells

EXPERIMENT = "autoddl_figure_10_transformer"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    return {"step": panels(cells(points, EXPERIMENT), "AutoDDL figure 10: transformers on two servers, simulated")}
