"""How wide an interval around a prediction has to be to hold most rows that a fit did not see (split conformal
prediction: Lei et al., "Distribution-Free Predictive Inference for Regression", JASA 2018, sec. 2.2).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from strata_analysis.fitted_cluster import INTERVAL_SHARE, KNOWN_OF


def interval_widths(rows: pd.DataFrame, devices_per_node: int) -> tuple[dict[str, float], ...]:
    """FittedCluster.intervals from @p rows predicted by fits that did not see them: the ⌈share · (n + 1)⌉-th smallest
    of |ln(measured / predicted)| of n rows, or the largest where that is none of them.

    There are rows on one node and on several. Where one kind of basis has none there, all rows there stand for it."""
    size = np.abs(np.log(rows["measured"] / rows["predicted"])).to_numpy()
    known = rows["basis"].map(KNOWN_OF).to_numpy()
    is_on_many = (rows["num_gpus"] > devices_per_node).to_numpy()
    widths = []
    for place in (~is_on_many, is_on_many):
        of_known = {}
        for name in dict.fromkeys(KNOWN_OF.values()):
            here = place & (known == name)
            of_known[name] = _quantile(size[here if here.any() else place])
        widths.append(of_known)
    return tuple(widths)


def _quantile(size: np.ndarray) -> float:
    place = math.ceil(INTERVAL_SHARE * (len(size) + 1))
    return float(np.sort(size)[min(place, len(size)) - 1])
