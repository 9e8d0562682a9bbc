"""Orders of steps, as `strata order` prints them, drawn as papers draw schedules: a row a stage, time to the right."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
# Of steps that overlap so many are drawn: the first ones begin with empty ranks, then each repeats the one before.
STEPS_THAT_OVERLAP = 4


class OrderError(ValueError):
    """The text is no order of a step."""


@dataclass
class Item:
    """One segment's pass of one micro-batch, or an update."""

    name: str
    segment: int = -1
    micro_batch: int = 0  # with sub-batches: each counts as one
    barrier: bool = False
    step: int = 0  # training step, from the first of a repetition
    version: int = 0  # of the parameters: how many steps old
    parameters: frozenset[int] = frozenset()  # update: which


@dataclass
class Segment:
    """Operators that a step takes as a whole."""

    stage: int
    num_operators: int
    communicates: frozenset[str] = frozenset()  # passes that end with a collective which changes layouts
    parameters: frozenset[int] = frozenset()


@dataclass
class Order:
    """What ranks that do the same compute in a repetition."""

    ranks: str
    sub_batches: int = 1
    micro_batches: int = 1
    steps_per_body: int = 1
    segments: list[Segment] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)

    @property
    def overlaps(self) -> bool:
        """Steps reach into each other, or read what an earlier one has made."""
        return self.steps_per_body > 1 or any(item.step != 0 or item.version != 0 for item in self.items)

    def share(self, item: Item) -> float:
        """Of a stage's whole pass of a micro-batch, by operators."""
        if item.name == "update":
            return self.steps_per_body / sum(other.name == "update" for other in self.items)
        stage = self.segments[item.segment].stage
        of_stage = sum(segment.num_operators for segment in self.segments if segment.stage == stage)
        return self.segments[item.segment].num_operators / of_stage / self.sub_batches

    def in_steps(self, num_steps: int) -> list[Item]:
        """What is computed of the first training steps, one repetition after the other."""
        late = max(((self.steps_per_body - 1 - item.step) // self.steps_per_body for item in self.items), default=0)
        items = []
        for repetition in range(num_steps // self.steps_per_body + late):
            for item in self.items:
                step = repetition * self.steps_per_body + item.step
                if 0 <= step < num_steps:
                    items.append(replace(item, step=step))
        return items

    def turn(self, item: Item) -> int:
        """Where a rank has several stages between which others have some: which of them it is, from the first on."""
        own = sorted({self.segments[other.segment].stage for other in self.items if other.name != "update"})
        if item.name == "update" or own[-1] - own[0] + 1 == len(own):
            return 0
        return own.index(self.segments[item.segment].stage)

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
                sizes = (int(keys[key]) for key in ("sub_batches", "micro_batches", "steps_per_body"))
                orders.append(Order(ranks, *sizes))
            elif words[0] == "segment":
                first, last = (int(end) for end in (keys["operators"].split("..") * 2)[:2])
                passes = frozenset(keys.get("communicates", "").split(","))
                parameters = numbers(keys.get("parameters", ""))
                orders[-1].segments.append(Segment(int(keys["stage"]), last - first + 1, passes, parameters))
            elif words[0] == "update":
                parameters = numbers(keys["parameters"])
                orders[-1].items.append(Item("update", step=int(keys.get("step", 0)), parameters=parameters))
            elif words[0] not in UNITS:
                raise OrderError(f"line {number}: no line of an order: {line}")
            else:
                first, last = (int(end) for end in (words[1].split("..") * 2)[:2])
                step = 1 if last >= first else -1
                part = int(keys["micro_batch"]) * orders[-1].sub_batches + int(keys.get("sub_batch", 0))
                for segment in range(first, last + step, step):
                    barrier = "barrier" in words and segment == first
                    when = (int(keys.get("step", 0)), int(keys.get("version", 0)))
                    orders[-1].items.append(Item(words[0], segment, part, barrier, *when))
        except (IndexError, KeyError, ValueError, AttributeError) as error:
            if isinstance(error, OrderError):
                raise
            raise OrderError(f"line {number}: no line of an order: {line}") from error
    if not orders:
        raise OrderError("no order")
    return orders


def numbers(text: str) -> frozenset[int]:
    """0..3,7: as orders write them."""
    ranges = [(part.split("..") * 2)[:2] for part in text.split(",") if part]
    return frozenset(number for first, last in ranges for number in range(int(first), int(last) + 1))


class Needs:
    """What an item waits for beside its own rank's items before it: names of others that must be over."""

    def __init__(self, orders: list[Order]) -> None:
        self.segments = orders[0].segments
        self.overlaps = any(order.overlaps for order in orders)
        self.parts = range(orders[0].micro_batches * orders[0].sub_batches)
        rows = [{item.segment for item in order.items if item.name != "update"} for order in orders]
        # What a rank updates itself it has read, and reads again, in the order of its own items.
        self.updated = [frozenset().union(*(item.parameters for item in order.items)) for order in orders]
        # Ranks that take a micro-batch each add its gradients to the sum that the one before has made.
        self.on_ring = {s for s in range(len(self.segments)) if sum(s in row for row in rows) > 1}

    def of(self, item: Item, row: int) -> list[tuple]:
        if item.name == "update":
            return self._of_update(item) if self.overlaps else []
        needs: list[tuple] = []
        if item.name == "forward" and item.segment > 0:
            needs.append(("forward", item.segment - 1, item.micro_batch, item.step))
        elif item.name == "backward":
            if item.segment < len(self.segments) - 1:
                needs.append(("backward", item.segment + 1, item.micro_batch, item.step))
            if item.segment in self.on_ring and item.micro_batch > 0:
                needs.append(("backward", item.segment, item.micro_batch - 1, item.step))
        if self.overlaps and item.step > item.version:
            made = item.step - item.version - 1
            others = self.segments[item.segment].parameters - self.updated[row]
            needs += [("update", parameter, 0, made) for parameter in others]
        return needs

    def _of_update(self, item: Item) -> list[tuple]:
        read = [s for s, segment in enumerate(self.segments) if segment.parameters & item.parameters]
        return [("backward", segment, part, item.step) for segment in read for part in self.parts]


def timed(orders: list[Order]) -> list[tuple[list[Box], list[Box]]]:
    """By order: its boxes and those of its collectives, each as early as its rank and what it needs of others allow.

    Messages between ranks take no time. An update of steps that do not overlap waits for nobody: what it needs of other
    ranks is no part of the picture.
    """
    needs_of = Needs(orders)
    items = [order.in_steps(STEPS_THAT_OVERLAP) if needs_of.overlaps else order.items for order in orders]
    ends: dict[tuple[str, int, int, int], float] = {}
    boxes: list[list[Box]] = [[] for _ in orders]
    collectives: list[list[Box]] = [[] for _ in orders]
    position = [0] * len(orders)
    clock = [0.0] * len(orders)
    link = [0.0] * len(orders)  # when the last collective has ended
    moved = True
    while moved:
        moved = False
        for row, order in enumerate(orders):
            while position[row] < len(items[row]):
                item = items[row][position[row]]
                needs = needs_of.of(item, row)
                if any(need not in ends for need in needs):
                    break
                before = ("recompute", item.segment - 1, item.micro_batch, item.step)
                if item.name == "recompute" and before in ends:
                    needs.append(before)  # the part of the block before it, computed again
                begin = max([clock[row], *(ends[need] for need in needs), link[row] if item.barrier else 0.0])
                clock[row] = end = begin + UNITS[item.name] * order.share(item)
                box = Box(item.name, item.micro_batch, begin, clock[row], item.step, order.turn(item))
                schedule.add(boxes[row], box, 1e-9)
                if order.communicates(item):
                    begin = max(clock[row], link[row])
                    link[row] = end = begin + order.collective_units
                    collectives[row].append(Box(COLLECTIVE, item.micro_batch, begin, end, item.step))
                if item.name == "update":
                    ends |= {("update", parameter, 0, item.step): end for parameter in item.parameters}
                else:
                    ends[item.name, item.segment, item.micro_batch, item.step] = end
                position[row] += 1
                moved = True
    if any(at < len(of_row) for at, of_row in zip(position, items, strict=True)):
        raise OrderError("the ranks wait for each other")
    return list(zip(boxes, collectives, strict=True))


def draw(orders: list[Order], title: str) -> Figure:
    """gids: see schedule.draw_rows; rows are those of `orders`."""
    rows = {}
    for order, (boxes, collectives) in zip(orders, timed(orders), strict=True):
        rows[order.ranks] = boxes
        if collectives:
            rows[f"{order.ranks}, sums"] = collectives
    unit = "forward passes of a stage (by the order alone, not measured)"
    if any(box.step > 0 for of_row in rows.values() for box in of_row):
        unit += "; every other training step is paler"
    if any(box.turn > 0 for of_row in rows.values() for box in of_row):
        unit += "; every other stage of a rank is paler"
    return schedule.draw_rows(rows, unit, title)


def write(text: str, file: Path, title: str) -> None:
    picture.kind_of(file)
    picture.write(draw(parse(text), title), file)
