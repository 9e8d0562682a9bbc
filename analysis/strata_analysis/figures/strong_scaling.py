"""Strong scaling: the same global batch on more ranks."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from strata_analysis.figures.scaling import draw_scaling
from strata_analysis.load import Results


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    return draw_scaling(points, points["num_samples_per_step"], "strong") or (
        "no two points of one series have the same global batch on different numbers of ranks"
    )
