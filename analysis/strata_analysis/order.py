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
# A collective that changes layouts takes as long as the forward of one sub-batch between two of them, in the mean: so
# it just disappears under another sub-batch's forward. With it, as in Li et al., Oases, 2023, fig. 3.
COLLECTIVE = "communication"


class OrderError(ValueError):
    """The text is no order of a step."""


@dataclass
class Item:
    """One segment's pass of one micro-batch, or an update."""

    name: str
    segment: int = -1
    micro_batch: int = 0  # with sub-batches: each counts as one
    barrier: bool = False


@dataclass
class Segment:
    """Operators that a step takes as a whole."""

    stage: int
    num_operators: int
    communicates: frozenset[str] = frozenset()  # passes that end with a collective which changes layouts


@dataclass
class Order:
    """What the ranks of one stage compute in a step."""

    ranks: str
    sub_batches: int = 1
    segments: list[Segment] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)

    @property
    def stage(self) -> int:
        return next(self.segments[item.segment].stage for item in self.items if item.name != "update")

    def share(self, item: Item) -> float:
        """Of the stage's whole pass of a micro-batch, by operators."""
        if item.name == "update":
            return 1 / sum(other.name == "update" for other in self.items)
        of_stage = sum(segment.num_operators for segment in self.segments if segment.stage == self.stage)
        return self.segments[item.segment].num_operators / of_stage / self.sub_batches

    def communicates(self, item: Item) -> bool:
        """Ends with a collective under which another sub-batch may compute."""
        return self.sub_batches > 1 and item.name != "update" and item.name in self.segments[item.segment].communicates

    @property
    def collective_units(self) -> float:
        sums = sum(self.communicates(item) for item in self.items if item.name == "forward")
        passes = sum(self.share(item) for item in self.items if item.name == "forward")
        return UNITS["forward"] * passes / sums if sums else 0.0


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
                if int(keys["steps_per_body"]) != 1:
                    raise OrderError(f"line {number}: steps that overlap cannot be drawn")
                orders.append(Order(ranks, int(keys["sub_batches"])))
            elif words[0] == "segment":
                first, last = (int(end) for end in (keys["operators"].split("..") * 2)[:2])
                passes = frozenset(keys.get("communicates", "").split(","))
                orders[-1].segments.append(Segment(int(keys["stage"]), last - first + 1, passes))
            elif words[0] == "update":
                orders[-1].items.append(Item("update"))
            elif words[0] not in UNITS:
                raise OrderError(f"line {number}: no line of an order: {line}")
            else:
                if "step" in keys:
                    raise OrderError(f"line {number}: steps that overlap cannot be drawn")
                first, last = (int(end) for end in (words[1].split("..") * 2)[:2])
                step = 1 if last >= first else -1
                part = int(keys["micro_batch"]) * orders[-1].sub_batches + int(keys.get("sub_batch", 0))
                for segment in range(first, last + step, step):
                    barrier = "barrier" in words and segment == first
                    orders[-1].items.append(Item(words[0], segment, part, barrier))
        except (IndexError, KeyError, ValueError, AttributeError) as error:
            if isinstance(error, OrderError):
                raise
            raise OrderError(f"line {number}: no line of an order: {line}") from error
    if not orders:
        raise OrderError("no order")
    return orders


def timed(orders: list[Order]) -> list[tuple[list[Box], list[Box]]]:
    """By order: its boxes and those of its collectives, each as early as its rank and what it needs of others allow.

    Messages between stages take no time. An update waits for nobody: what it needs of other ranks is no part of the
    picture.
    """
    last = len(orders[0].segments) - 1
    ends: dict[tuple[str, int, int], float] = {}
    boxes: list[list[Box]] = [[] for _ in orders]
    collectives: list[list[Box]] = [[] for _ in orders]
    position = [0] * len(orders)
    clock = [0.0] * len(orders)
    link = [0.0] * len(orders)  # when the last collective has ended
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
                if item.name == "recompute" and (before := ("recompute", item.segment - 1, item.micro_batch)) in ends:
                    needs.append(before)  # the part of the block before it, computed again
                begin = max([clock[row], *(ends[need] for need in needs), link[row] if item.barrier else 0.0])
                clock[row] = end = begin + UNITS[item.name] * order.share(item)
                schedule.add(boxes[row], Box(item.name, item.micro_batch, begin, clock[row]), 1e-9)
                if order.communicates(item):
                    begin = max(clock[row], link[row])
                    link[row] = end = begin + order.collective_units
                    collectives[row].append(Box(COLLECTIVE, item.micro_batch, begin, end))
                ends[item.name, item.segment, item.micro_batch] = end
                position[row] += 1
                moved = True
    if any(at < len(order.items) for at, order in zip(position, orders, strict=True)):
        raise OrderError("the ranks wait for each other")
    return list(zip(boxes, collectives, strict=True))


def draw(orders: list[Order], title: str) -> Figure:
    """gids: see schedule.draw_rows; rows are those of `orders`."""
    rows = {}
    for order, (boxes, collectives) in zip(orders, timed(orders), strict=True):
        rows[order.ranks] = boxes
        if collectives:
            rows[f"{order.ranks}, sums"] = collectives
    return schedule.draw_rows(rows, "forward passes of a stage (by the order alone, not measured)", title)


def write(text: str, file: Path, title: str) -> None:
    picture.kind_of(file)
    picture.write(draw(parse(text), title), file)
