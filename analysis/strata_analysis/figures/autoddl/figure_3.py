"""AutoDDL's figure 3: elements that a rank moves forward under Megatron's layouts and under those that are searched."""

from __future__ import annotations

import re

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures import bars, style
from strata_analysis.load import Results
from strata_analysis.published import published
from strata_analysis.published.autoddl import NAMES

EXPERIMENT = "autoddl_figure_3"


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `elements/<strategy>` on bars, in units of 2^30. The paper counts one attention layer, a plan the model."""
    rows = elements(points)
    if rows.empty:
        return "no plan says what a rank moves"
    figure, axes = pyplot.subplots(figsize=(style.COLUMN_INCHES, style.HEIGHT_INCHES))
    for place, row in enumerate(rows.itertuples(index=False)):
        bars.single(axes, place, row.elements_2e30, 0.6, style.colour(row.strategy), False, f"elements/{row.strategy}")
    axes.set_xticks(range(len(rows)), [NAMES.get(name, name) for name in rows["strategy"]])
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("elements a rank moves forward, 2^30")
    printed = published("autoddl", "figure_3").set_index("strategy")["elements_2e30"]
    saved = f"{100 * (1 - printed['autoddl'] / printed['megatron']):.0f} % fewer"
    axes.set_title(f"paper: {saved} in one attention layer\nhere: {saved_in_words(rows)} in the model", fontsize=6.5)
    figure.suptitle("AutoDDL figure 3: planned", fontsize=8)
    return {"elements": figure}


def elements(points: pd.DataFrame) -> pd.DataFrame:
    """strategy and elements_2e30, what its plan says that a rank moves forward in a micro-batch."""
    found = []
    for _, point in points[points["experiment_name"] == EXPERIMENT].iterrows():
        said = re.search(r"a rank moves (\S+) elements forward", point["plan_text"] or "")
        if said:
            found.append((point["strategy_name"], float(said[1]) / 2**30))
    return pd.DataFrame(found, columns=["strategy", "elements_2e30"])


def saved_in_words(rows: pd.DataFrame) -> str:
    by_strategy = rows.set_index("strategy")["elements_2e30"]
    if not {"autoddl", "megatron"} <= set(by_strategy.index):
        return "no pair"
    return f"{100 * (1 - by_strategy['autoddl'] / by_strategy['megatron']):.0f} % fewer"
