"""A plan and why it is what it is, as `strata plan --explain` tells it: in words, and as a page with a picture.

Reads the plan's text alone, with its [why].
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strata_analysis.atomic import replace_file
from strata_analysis.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GIB = 1024.0**3
WIDTH = 110  # of the text, in characters
COST = re.compile(r"(?P<seconds>[0-9][0-9.e+-]*) s, (?P<gib>[0-9.]+) GiB")


class ExplainError(UserError):
    """The text is no plan, or none that says why."""


@dataclass(frozen=True)
class Choice:
    """A plan beside the one that was chosen: its name or what it decides, and what it costs in words."""

    name: str
    words: str
    seconds: float | None = None  # of a step; None: there is no such plan
    gib: float | None = None  # of the fullest rank

    @property
    def words_behind_cost(self) -> str:
        """Without seconds and memory where the words begin with them."""
        cost = COST.match(self.words)
        return self.words[cost.end() :].lstrip(",: ") if cost else self.words


@dataclass(frozen=True)
class Explanation:
    strategy: str
    heading: str
    predicted: str
    seconds: float
    gib: float
    capacity_gib: float  # 0: no limit
    binding: str
    runner_up: str
    decisions: list[Choice]
    singles: list[Choice]
    ablation: list[Choice]
    frontier: list[Choice]
    plan: str  # its text without the reasons


def parse(text: str) -> Explanation:
    """What `text`, a plan as `strata plan` prints it, says."""
    try:
        plan = tomllib.loads(text)
        why, mesh = plan["why"], plan["mesh"]
        seconds, peak = why["predicted_seconds"], why["predicted_peak_bytes"]
        heading = (
            f"{plan['strategy']} on {mesh['nodes']} nodes x {mesh['ranks_per_node']} ranks, "
            f"{plan['batch']['global']} samples a step"
        )
        capacity = plan.get("device_capacity_bytes", 0) / GIB
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise ExplainError(f"no plan that says why: {error}; `strata plan --explain` hands one over") from error
    return Explanation(
        strategy=plan["strategy"],
        heading=heading,
        predicted=_predicted(seconds, peak, capacity),
        seconds=seconds,
        gib=peak / GIB,
        capacity_gib=capacity,
        binding=why.get("binding", ""),
        runner_up=why.get("runner_up", ""),
        decisions=[_choice(line) for line in why.get("decisions", [])],
        singles=[_choice(line) for line in why.get("singles", [])],
        ablation=[_choice(line) for line in why.get("ablation", [])],
        frontier=[_choice_of_frontier(line) for line in why.get("frontier", [])],
        plan=text[: text.index("[why]")].rstrip() + "\n",
    )


def _predicted(seconds: float, peak: int, capacity: float) -> str:
    if seconds == 0.0:
        return "nothing predicted: nobody knows the costs"
    limit = f" of {capacity:.2f} GiB" if capacity > 0 else ""
    return f"predicted: {seconds:.6g} s a step, {peak / GIB:.2f} GiB{limit} on the fullest rank"


def _choice(line: str) -> Choice:
    name, words = line.split(": ", 1)
    return Choice(name, words, *_cost(words))


def _choice_of_frontier(line: str) -> Choice:
    return Choice("", line, *_cost(line))


def _cost(words: str) -> tuple[float | None, float | None]:
    found = COST.search(words)
    return (float(found["seconds"]), float(found["gib"])) if found else (None, None)


def to_text(explanation: Explanation) -> str:
    """For a terminal."""
    parts = [explanation.heading, explanation.predicted, "", "What it decides", _indented(explanation.binding)]
    if explanation.runner_up:
        parts += ["", "The best plan of other degrees" if explanation.decisions else "Next best"]
        parts.append(_indented(explanation.runner_up))
    for title, choices in (
        ("What the next choice of each decision costs", explanation.decisions),
        ("What single modes plan here", explanation.singles),
        ("What it finds without one dimension", explanation.ablation),
    ):
        if choices:
            parts += ["", title, *_rows([(choice.name, choice.words) for choice in choices])]
    if explanation.frontier:
        rows = [
            (
                f"{choice.seconds:.6g} s, {choice.gib:.2f} GiB" if choice.seconds is not None else "",
                choice.words_behind_cost,
            )
            for choice in explanation.frontier
        ]
        parts += ["", "What less memory costs", *_rows(rows)]
    return "\n".join(parts) + "\n"


def _indented(words: str) -> str:
    return textwrap.fill(words, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [
        textwrap.fill(words, WIDTH, initial_indent=f"  {name:<{width}}  ", subsequent_indent=" " * (width + 4))
        for name, words in rows
    ]


def write_page(explanation: Explanation, file: Path) -> None:
    """One HTML file that needs no other."""
    from matplotlib import pyplot

    from strata_analysis.figures import style
    from strata_analysis.report import render
    from strata_analysis.report.inline_svg import inline_svg

    svg = ""
    if figure := draw(explanation):
        with style.applied():
            svg = inline_svg(figure, "frontier")
        pyplot.close(figure)
    text = render({"explanation": explanation, "picture": svg}, "plan.html.j2")
    replace_file(file, lambda path: path.write_text(text, encoding="utf-8"))


def draw(explanation: Explanation) -> Figure | None:
    """Time against memory: the frontier, the plans of single modes, and the chosen one. None: no plan's cost is known.

    gids: `plan/frontier`, `plan/chosen`, `plan/capacity` and `single/<mode>`.
    """
    from matplotlib import pyplot

    from strata_analysis.figures import style

    if explanation.seconds == 0.0:
        return None
    singles = [choice for choice in explanation.singles if choice.seconds is not None]
    frontier = sorted(
        (choice for choice in explanation.frontier if choice.seconds is not None), key=lambda choice: choice.gib
    )
    with style.applied():
        figure, axes = pyplot.subplots(figsize=(style.PAGE_INCHES, 1.3 * style.HEIGHT_INCHES))
        axes.step(
            [choice.gib for choice in frontier],
            [choice.seconds for choice in frontier],
            where="post",
            color=style.STRATEGY_COLOURS["auto"],
            marker=".",
            label="least time in so much memory",
            gid="plan/frontier",
        )
        for choice in singles:
            colour = style.STRATEGY_COLOURS.get(choice.name, style.OTHER_COLOUR)
            axes.plot(choice.gib, choice.seconds, "o", color=colour, gid=f"single/{choice.name}", linestyle="none")
        axes.plot(
            explanation.gib,
            explanation.seconds,
            "*",
            markersize=10,
            color="black",
            label=f"{explanation.strategy}, chosen",
            gid="plan/chosen",
            linestyle="none",
        )
        if explanation.capacity_gib > 0:
            axes.axvline(
                explanation.capacity_gib, linestyle=":", color="black", label="a rank's memory", gid="plan/capacity"
            )
        axes.set_yscale("log")
        axes.set_xlabel("memory of the fullest rank (GiB)")
        axes.set_ylabel("predicted step (s)")
        axes.set_title("Time against memory, predicted")
        axes.legend()
        _name_beside(axes, singles)
    return figure


def _name_beside(axes: Axes, choices: list[Choice]) -> None:
    """Names in a column right of the picture, a line to the place of each; modes that plan the same share a name."""
    from strata_analysis.figures import style

    places: dict[tuple[float, float], list[str]] = {}
    for choice in sorted(choices, key=lambda choice: (choice.seconds, choice.gib)):
        places.setdefault((choice.gib, choice.seconds), []).append(choice.name)
    if not places:
        return
    to_fraction = axes.transData + axes.transAxes.inverted()
    gap = min(0.07, 1.0 / len(places))
    heights: list[float] = []  # from below, a gap apart at least
    for place in places:
        height = float(to_fraction.transform(place)[1])
        heights.append(max(height, heights[-1] + gap) if heights else max(height, 0.0))
    highest = 1.0
    for i in reversed(range(len(heights))):  # and not above the picture
        heights[i] = min(heights[i], highest)
        highest = heights[i] - gap
    for (place, names), height in zip(places.items(), heights, strict=True):
        axes.annotate(
            textwrap.fill(", ".join(names), 44),
            place,
            xytext=(1.03, height),
            textcoords="axes fraction",
            verticalalignment="center",
            fontsize=6,
            arrowprops={"arrowstyle": "-", "linewidth": 0.3, "color": style.OTHER_COLOUR, "shrinkA": 0, "shrinkB": 2},
        )
