"""Orders of steps, as `strata order` prints them, drawn as papers draw schedules: a row a stage, time to the right."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from strata_analysis import picture
from strata_analysis.figures import schedule
from strata_analysis.figures.schedule import Box

# Of a stage's whole pass, in units of its forward, as in Narayanan et al., SC 2021, fig. 4. An update takes little.
UNITS = {"forward": 1.0, "recompute": 1.0, "backward": 2.0, "update": 0.25}


class OrderError(ValueError):
    """The text is no order of a step."""


@dataclass
class Item:
    """One segment's pass of one micro-batch, or an update."""

    name: str
    segment: int = -1
    micro_batch: int = 0


@dataclass
class Order:
    """What the ranks of one stage compute in a step."""

    ranks: str
    stages: list[int] = field(default_factory=list)  # by segment
    items: list[Item] = field(default_factory=list)

    @property
    def stage(self) -> int:
        return next(self.stages[item.segment] for item in self.items if item.name != "update")


def parse(text: str) -> list[Order]:
    orders: list[Order] = []
    ranks = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        keys = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            if words[0] == "#":
                ranks = words[2]
            elif words[0] == "order":
                if int(keys["steps_per_body"]) != 1 or int(keys["sub_batches"]) != 1:
                    raise OrderError(f"line {number}: steps that overlap, or sub-batches, cannot be drawn")
                orders.append(Order(ranks))
            elif words[0] == "segment":
                orders[-1].stages.append(int(keys["stage"]))
            elif words[0] == "update":
                orders[-1].items.append(Item("update"))
            elif words[0] not in UNITS:
                raise OrderError(f"line {number}: no line of an order: {line}")
            else:
                if "step" in keys:
                    raise OrderError(f"line {number}: steps that overlap cannot be drawn")
                first, last = (int(end) for end in (words[1].split("..") * 2)[:2])
                step = 1 if last >= first else -1
                for segment in range(first, last + step, step):
                    orders[-1].items.append(Item(words[0], segment, int(keys["micro_batch"])))
        except (IndexError, KeyError, ValueError, AttributeError) as error:
            if isinstance(error, OrderError):
                raise
            raise OrderError(f"line {number}: no line of an order: {line}") from error
    if not orders:
        raise OrderError("no order")
    return orders


def timed(orders: list[Order]) -> list[list[Box]]:
    """By order: its boxes, each item as early as its rank and what it needs of others allow; messages take no time.

    An update waits for nobody: what it needs of other ranks is no part of the picture.
    """
    num_segments = [order.stages.count(order.stage) for order in orders]
    num_updates = [sum(item.name == "update" for item in order.items) for order in orders]
    last = len(orders[0].stages) - 1
    ends: dict[tuple[str, int, int], float] = {}
    boxes: list[list[Box]] = [[] for _ in orders]
    position = [0] * len(orders)
    clock = [0.0] * len(orders)
    moved = True
    while moved:
        moved = False
        for row, order in enumerate(orders):
            while position[row] < len(order.items):
                item = order.items[position[row]]
                needs = []
                if item.name == "forward" and item.segment > 0:
                    needs = [("forward", item.segment - 1, item.micro_batch)]
                elif item.name == "backward" and item.segment < last:
                    needs = [("backward", item.segment + 1, item.micro_batch)]
                if any(need not in ends for need in needs):
                    break
                parts = num_updates[row] if item.name == "update" else num_segments[row]
                begin = max([clock[row], *(ends[need] for need in needs)])
                clock[row] = begin + UNITS[item.name] / parts
                ends[item.name, item.segment, item.micro_batch] = clock[row]
                schedule.add(boxes[row], Box(item.name, item.micro_batch, begin, clock[row]), 1e-9)
                position[row] += 1
                moved = True
    if any(at < len(order.items) for at, order in zip(position, orders, strict=True)):
        raise OrderError("the ranks wait for each other")
    return boxes


def draw(orders: list[Order], title: str) -> Figure:
    """gids: see schedule.draw_rows; rows are those of `orders`."""
    rows = dict(zip((order.ranks for order in orders), timed(orders), strict=True))
    return schedule.draw_rows(rows, "forward passes of a stage (by the order alone, not measured)", title)


def write(text: str, file: Path, title: str) -> None:
    picture.kind_of(file)
    picture.write(draw(parse(text), title), file)
