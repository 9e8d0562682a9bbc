"""What the modules of figure 4 share: communication predicted and taken, a pair of bars a strategy."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from strata_analysis.figures import bars, style
from strata_analysis.published.autoddl import is_simulated, of_figure_4, rank_correlation

PREDICTED_COLOUR = "0.6"
WIDTH = 0.4
MOST_BESIDE_EACH_OTHER = 12  # names of strategies, in several lines each


def draw_for(experiment: str, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `predicted/<strategy>` and `communication/<strategy>` on bars of seconds, most communication first."""
    rows = of_figure_4(points, experiment)
    if len(rows) < 2:
        return "no two strategies have a predicted communication"
    is_crowded = len(rows) > MOST_BESIDE_EACH_OTHER
    figure, axes = pyplot.subplots(figsize=(style.PAGE_INCHES, (1.5 if is_crowded else 1.0) * style.HEIGHT_INCHES))
    for place, row in enumerate(rows.itertuples(index=False)):
        bars.single(
            axes, place - WIDTH / 2, row.predicted, 0.9 * WIDTH, PREDICTED_COLOUR, False, f"predicted/{row.strategy}"
        )
        colour = style.colour(row.strategy.split()[0])
        name = f"communication/{row.strategy}"
        bars.single(axes, place + WIDTH / 2, row.communication, 0.9 * WIDTH, colour, row.simulated, name)
    words = [word if is_crowded else word.replace(" ", "\n").replace("=", "\n") for word in rows["strategy"]]
    axes.set_xticks(range(len(rows)), words, fontsize=6, rotation=90 if is_crowded else 0)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("seconds a step")
    # Planner and simulator ask the same formulas, so that what agrees there says nothing of a network.
    kind = "simulated" if is_simulated(rows) else "measured"
    what = "AutoDDL figure 4" if kind == "measured" else "Consistency of planner and simulator"
    figure.suptitle(
        f"{what}: communication of one transformer on {rows['platform'].iloc[0]}; "
        f"rank correlation {rank_correlation(rows):.2f}",
        fontsize=8,
    )
    handles = [
        Patch(facecolor=PREDICTED_COLOUR, label="predicted by the planner"),
        Patch(facecolor="white", edgecolor="0.4", hatch="////" if kind == "simulated" else None, label=kind),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return {"communication": figure}
