"""One module a figure. Each has `draw(results, points)`, which returns figures by name, or a reason why there is none.

`points` are the derived rows of the points, one each. Every artist that shows a number carries a gid,
`<what>/<series>`, so that a test can read the plotted values back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import matplotlib
import pandas as pd

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis import in_processes
from strata_analysis.derive import by_point
from strata_analysis.figures import (
    amsp,
    autoddl,
    cdp,
    forest,
    loss_curves,
    memory_by_category,
    mfu,
    oases,
    osdp,
    predicted_step_time,
    schedule,
    strong_scaling,
    style,
    time_breakdown,
    weak_scaling,
)
from strata_analysis.load import Results

MODULES = (
    forest,
    strong_scaling,
    weak_scaling,
    mfu,
    time_breakdown,
    memory_by_category,
    loss_curves,
    predicted_step_time,
    schedule,
)
# Figures of a paper, drawn where its experiments are among the results.
PAPERS = {
    "amsp": amsp.MODULES,
    "autoddl": autoddl.MODULES,
    "cdp": cdp.MODULES,
    "oases": oases.MODULES,
    "osdp": osdp.MODULES,
}
FORMATS = ("png", "svg", "pdf")
Used = TypeVar("Used")


@dataclass
class Drawn:
    files: list[Path] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # figure -> why


def draw_all(results: Results, folder: Path) -> Drawn:
    """Draw what the results allow into `folder`, each figure in all formats."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Drawn()
    for name, files in each_used(results, lambda name, figure: _saved(figure, folder, name)):
        if isinstance(files, str):
            drawn.left_out[name] = files
        else:
            drawn.files += files
    return drawn


def _saved(figure: Figure, folder: Path, name: str) -> list[Path]:
    files = [folder / f"{name}.{ending}" for ending in FORMATS]
    with style.laid_out(figure):
        for file, ending in zip(files, FORMATS, strict=True):
            figure.savefig(file, metadata=style.metadata(ending))
    return files


def each_used(results: Results, use: Callable[[str, Figure], Used]) -> Iterator[tuple[str, Used | str]]:
    """(name, what `use` makes of name and figure) of what `figures_of` has, in its order; modules draw in processes."""
    points = by_point(results)

    def used(module: tuple[str, ModuleType]) -> list[tuple[str, Used | str]]:
        drawn = _drawn([module], results, points)
        return [(name, figure if isinstance(figure, str) else use(name, figure)) for name, figure in drawn]

    for figures in in_processes.each(used, list(_modules_for(set(points["experiment_name"])))):
        yield from figures


def figures_of(results: Results) -> Iterator[tuple[str, Figure | str]]:
    """(name, figure), one at a time and closed after its turn; or (module, the reason why there is none)."""
    points = by_point(results)
    yield from _drawn(_modules_for(set(points["experiment_name"])), results, points)


def figures_of_paper(paper: str, results: Results) -> Iterator[tuple[str, Figure | str]]:
    """The same of its own figures alone."""
    points = by_point(results)
    present = set(points["experiment_name"])
    yield from _drawn(
        ((name, module) for name, module in _modules_for(present) if module in PAPERS.get(paper, ())), results, points
    )


def _drawn(
    modules: Iterable[tuple[str, ModuleType]], results: Results, points: pd.DataFrame
) -> Iterator[tuple[str, Figure | str]]:
    with style.applied():
        for name, module in modules:
            figures = module.draw(results, points)
            if isinstance(figures, str):
                yield name, figures
                continue
            for suffix, figure in figures.items():
                yield f"{name}-{suffix}", figure
                pyplot.close(figure)


def _modules_for(experiments: set[str]) -> Iterator[tuple[str, ModuleType]]:
    """(name of the figure, module)."""
    for module in MODULES:
        yield module.__name__.rsplit(".", 1)[-1], module
    for paper, modules in PAPERS.items():
        for module in modules:
            if module.EXPERIMENT in experiments:
                yield f"{paper}-{module.__name__.rsplit('.', 1)[-1]}", module
