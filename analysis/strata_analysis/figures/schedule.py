"""What each rank computed when, drawn as papers draw schedules: a row a rank, micro-batches numbered from 1."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from strata_analysis.figures import style
from strata_analysis.load import Results

COLOURS = {
    "forward": "#7FB2D9",
    "recompute": "#F3C35C",
    "backward": "#7DB88B",
    "update": "#B58BB8",
    "communication": "#D98B7F",
}
IDLE_COLOUR = "#DDDDDD"
SMALLEST_INCHES, LARGEST_INCHES = 4.6, 60.0
COMPUTE_STREAM = 0
MOST_RANKS = 64  # more rows than these cannot be told apart
SMALLEST_GAP = 0.01  # of a step: what is shorter is not drawn as idle


@dataclass
class Box:
    """What is drawn as one: neighbouring kernels of one pass of one micro-batch, or a collective."""

    name: str
    micro_batch: int
    begin: float
    end: float
    step: int = 0  # training step
    turn: int = 0  # of a rank with several stages: which of them


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """A model's largest point of each strategy with several micro-batches: its last step whose events are recorded."""
    figures = {}
    for (model, strategy), members in points.sort_values("num_ranks").groupby(["model_name", "strategy_name"]):
        for _, point in members.iloc[::-1].iterrows():
            of_point = results.table_of("events", point)
            if len(of_point) and of_point["micro_batch"].max() >= 1 and of_point["rank"].nunique() <= MOST_RANKS:
                last = of_point[of_point["step"] == of_point["step"].max()]
                rows = {str(rank): boxes(of_rank) for rank, of_rank in last.groupby("rank")}
                source = "simulated" if point["simulated"] else "measured"
                figures[f"{model}-{strategy}"] = draw_rows(rows, "ms", f"{model}, {strategy}: a step, {source}")
                break
    return figures or "no point has several micro-batches and recorded events"


def boxes(events: pd.DataFrame) -> list[Box]:
    """Of one rank and step, in milliseconds."""
    kernels = events[(events["stream"] == COMPUTE_STREAM) & events["phase"].isin(COLOURS)].sort_values("begin_seconds")
    if kernels.empty:
        return []
    gap = SMALLEST_GAP * 1e3 * kernels["end_seconds"].max()
    row: list[Box] = []
    for kernel in kernels.itertuples(index=False):
        add(row, Box(kernel.phase, kernel.micro_batch, 1e3 * kernel.begin_seconds, 1e3 * kernel.end_seconds), gap)
    return row


def add(row: list[Box], box: Box, gap: float) -> None:
    """To the last one, if it is of the same pass and ends less than `gap` before."""
    same = row and all(getattr(row[-1], key) == getattr(box, key) for key in ("name", "micro_batch", "step", "turn"))
    if same and box.begin - row[-1].end < gap:
        row[-1].end = box.end
    else:
        row.append(box)


def draw_rows(rows: dict[str, list[Box]], unit: str, title: str) -> Figure:
    """By name of a rank, or of ranks. gids: `<pass>/<row>/<micro-batch>` of boxes, of training steps from
    the second on with `/<step>` behind, of stages of a rank with `.<turn>`; `idle/<row>` of what is behind.
    """
    end = max((box.end for row in rows.values() for box in row), default=1.0)
    boxes_in_widest = max(map(len, rows.values()))
    with style.applied():
        width = min(max(SMALLEST_INCHES, 0.22 * boxes_in_widest + 1.0), LARGEST_INCHES)
        figure, axes = plt.subplots(figsize=(width, 0.24 * len(rows) + 0.95))
        unit_points = 72 * (width - 0.8) / end
        for row, members in enumerate(rows.values()):
            _draw_rectangle(axes, row, Box("idle", 0, 0.0, end), IDLE_COLOUR, f"idle/{row}", 0.0)
            for box in members:
                edge = 0.4 if unit_points * (box.end - box.begin) > 4 else 0.0
                colour = style.paler(COLOURS[box.name], 0.7) if (box.step + box.turn) % 2 else COLOURS[box.name]
                of_step = (f"/{box.step}" if box.step else "") + (f".{box.turn}" if box.turn else "")
                _draw_rectangle(axes, row, box, colour, f"{box.name}/{row}/{box.micro_batch}{of_step}", edge)
                number = str(box.micro_batch + 1)
                if box.name != "update" and unit_points * (box.end - box.begin) > 3.6 * len(number):
                    axes.text((box.begin + box.end) / 2, row + 0.5, number, ha="center", va="center", fontsize=6)
        axes.set_xlim(0, end)
        axes.set_ylim(len(rows), 0)
        axes.set_yticks([row + 0.46 for row in range(len(rows))], list(rows))
        axes.tick_params(length=0)
        axes.grid(False)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.set_xlabel(unit)
        axes.set_ylabel("rank")
        axes.set_title(title)
        colours = COLOURS | {"idle": IDLE_COLOUR}
        shown = [name for name in colours if name in axes.get_legend_handles_labels()[1]]
        handles = [Rectangle((0, 0), 1, 1, facecolor=colours[name]) for name in shown]
        figure.legend(handles, shown, loc="outside lower center", ncols=len(shown))
    return figure


def _draw_rectangle(axes: plt.Axes, row: int, box: Box, colour: str, gid: str, edge_points: float) -> None:
    known = axes.get_legend_handles_labels()[1]
    axes.add_patch(
        Rectangle(
            (box.begin, row),
            box.end - box.begin,
            0.92,
            facecolor=colour,
            edgecolor="white",
            linewidth=edge_points,
            gid=gid,
            label="_" if box.name in known else box.name,
        )
    )
