"""AutoDDL's figure 4: communication predicted for eight strategies and simulated on 32 nodes of Piz Daint."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.autoddl.communication import draw_for
from strata_analysis.load import Results

EXPERIMENT = "autoddl_figure_4_daint"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    return draw_for(EXPERIMENT, points)
