"""AutoDDL's figure 4: communication predicted for 34 strategies and taken on four nodes of the testbed."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.autoddl.communication import draw_for
from strata_analysis.load import Results

EXPERIMENT = "autoddl_testbed_figure_4"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    return draw_for(EXPERIMENT, points)
