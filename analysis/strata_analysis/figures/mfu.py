"""Model FLOP utilisation over ranks. One figure a model and convention: two conventions are never mixed."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strata_analysis import peaks
from strata_analysis.figures import over_ranks, style
from strata_analysis.figures.over_ranks import Line, Quantity
from strata_analysis.load import Results
from strata_analysis.series import series_of


def draw(_results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `mfu/<series>`."""
    figures = {}
    for (model, convention), members in points.groupby(["model_name", "flop_convention"]):
        if members["mfu"].notna().any():
            of = "; ".join(peaks.in_words(members[members["mfu"].notna()]))
            figures[f"{model}-{convention}"] = over_ranks.draw(
                f"{style.about(str(model), members)}: model FLOP utilisation\nof {of}",
                [Line(label, group) for label, group in series_of(members)],
                Quantity("mfu", 100.0, "mfu", f"MFU, % ({convention} convention)"),
                _from_zero_to(_top(members)),
            )
    return figures or "no point has a measured step and a peak"


def _top(points: pd.DataFrame) -> float:
    """All that there could be, unless that would press the lines to the ground."""
    highest = 100.0 * points["mfu"].max()
    return max(100.0, 1.1 * highest) if highest > 30.0 else 1.3 * highest


def _from_zero_to(top: float) -> Callable[[Axes, list[Line]], None]:
    return lambda axes, _lines: axes.set_ylim(0, top)
