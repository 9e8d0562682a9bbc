"""One module a figure. Each has `draw(results, points)`, which returns figures by name, or a reason why there is none.

`points` are the derived rows of the last attempts. Every artist that shows a number carries a gid, `<what>/<series>`,
so that a test can read the plotted values back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from strata_analysis.derive import derive
from strata_analysis.figures import (
    loss_curves,
    memory_by_category,
    mfu,
    strong_scaling,
    style,
    time_breakdown,
    weak_scaling,
)
from strata_analysis.load import Results

MODULES = (strong_scaling, weak_scaling, mfu, time_breakdown, memory_by_category, loss_curves)
FORMATS = ("png", "svg", "pdf")


@dataclass
class Drawn:
    files: list[Path] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # figure -> why


def draw_all(results: Results, folder: Path) -> Drawn:
    """Draw what the results allow into `folder`, each figure in all formats."""
    folder.mkdir(parents=True, exist_ok=True)
    points = derive(results)
    points = points[points["is_last"]].reset_index(drop=True)
    drawn = Drawn()
    with style.applied():
        for module in MODULES:
            name = module.__name__.rsplit(".", 1)[-1]
            figures = module.draw(results, points)
            if isinstance(figures, str):
                drawn.left_out[name] = figures
                continue
            for suffix, figure in figures.items():
                for ending in FORMATS:
                    file = folder / f"{name}-{suffix}.{ending}"
                    figure.savefig(file, metadata=style.metadata(ending))
                    drawn.files.append(file)
                pyplot.close(figure)
    return drawn
