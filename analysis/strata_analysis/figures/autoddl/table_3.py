"""AutoDDL's table 3: a wide and a deep transformer in pipelines on Piz Daint, the best number of stages of each."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.autoddl.step_time import panels
from strata_analysis.load import Results
from strata_analysis.published.autoddl import cells

EXPERIMENT = "autoddl_table_3"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    return {"step": panels(cells(points, EXPERIMENT), "AutoDDL table 3: the best number of stages, simulated")}
