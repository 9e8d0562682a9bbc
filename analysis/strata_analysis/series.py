"""What a series is: the one place that decides which points belong together and by what name.

A sweep varies many keys, and most of them follow from others: micro-batches from the ranks, a sharding factor from the
strategy. A series is told from the others by its strategy and by those axes alone without which two points would stand
at the same place of the x axis. Everything else would make labels long and say nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import pandas as pd

# Keys whose values have a column of their own, and keys that only name a point.
KEYS_WITH_COLUMNS = {"backend", "model.name", "strategy.name", "train.dtype", "resources.threads_per_rank"}
KEYS_THAT_NAME = {"name", "title"}
EMULATION_KEYS = {
    f"communication.emulated_link.{key}" for key in ("alpha_us", "gbit_per_s", "inside.alpha_us", "inside.gbit_per_s")
}
DEFAULT = "default"
# Axes that are columns of a point, in the order in which labels name them; keys of the point come after them.
COLUMNS = ("dtype", "threads_per_rank", "backend", "experiment_name")


def keys_of(point: pd.Series) -> dict[str, str]:
    """The canonical keys of a point: dotted key -> TOML text."""
    lines = (line.split(" = ", 1) for line in point["point_keys"].splitlines() if " = " in line)
    return {key: value for key, value in lines}


def separating_axes(axes: list[dict[str, str]], places: Sequence[Hashable]) -> list[str]:
    """The fewest axes, found greedily, by which points of one place can be told apart.

    axes: for each point its value of each axis; a missing one has the value DEFAULT. places: for each point what else
    distinguishes it (its x, its strategy). In each turn the axis is taken that tells the most points apart, of equal
    ones a strategy's option and then the first in the order of `_rank`.
    """
    candidates = sorted({name for point in axes for name in point}, key=_rank)
    found: list[str] = []
    groups: list[Hashable] = list(places)
    while candidates and len(set(groups)) < len(groups):
        split = {
            name: [(group, point.get(name, DEFAULT)) for group, point in zip(groups, axes, strict=True)]
            for name in candidates
        }
        best = max(candidates, key=lambda name: len(set(split[name])))
        if len(set(split[best])) == len(set(groups)):
            break
        groups = split[best]
        candidates.remove(best)
        found.append(best)
    return sorted(found, key=_rank)


def _rank(name: str) -> tuple:
    """Strategies' options first, then columns, then other keys by name."""
    is_column = name in COLUMNS
    return not name.startswith("strategy."), not is_column, COLUMNS.index(name) if is_column else name


def labels_of(points: pd.DataFrame) -> pd.Series:
    """The name of each point's series among `points`, with their index; x is the number of ranks.

    Models are told apart by figures and tables, so a label does not name them. Measured and simulated points, and those
    over different emulated links, never share a series: a line through both would claim what nobody measured. Where all
    points of a model are simulated, figures and tables say so once.
    """
    labels = pd.Series("", index=points.index, dtype=object)
    for _, members in points.groupby("model_name"):
        axes = [_axes_of(point) for _, point in members.iterrows()]
        strategies = list(members["strategy_name"])
        kinds = list(zip(strategies, members["simulated"].astype(bool), members["link"], strict=True))
        found = separating_axes(axes, list(zip(kinds, members["num_ranks"], strict=True)))
        own = {
            strategy: [
                name
                for name in found
                if not name.startswith("strategy.") or len({a.get(name) for a, s in of_all if s == strategy}) > 1
            ]
            for of_all in [list(zip(axes, strategies, strict=True))]
            for strategy in set(strategies)
        }
        say_link = members["link"].nunique() > 1
        say_simulated = len({simulated for _, simulated, _ in kinds}) > 1
        for index, (strategy, simulated, link), values in zip(members.index, kinds, axes, strict=True):
            words = [strategy, *(_words(name, values.get(name, DEFAULT)) for name in own[strategy])]
            words += [link] if say_link and link else []
            words += ["simulated"] if say_simulated and simulated else []
            labels[index] = ", ".join(words)
    return labels


def series_of(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(label, its points by ranks) of every series among points of one model."""
    for label, members in points.groupby(labels_of(points), sort=True):
        yield str(label), members.sort_values(["num_ranks", "num_samples_per_step"])


def _axes_of(point: pd.Series) -> dict[str, str]:
    left_out = KEYS_WITH_COLUMNS | KEYS_THAT_NAME | EMULATION_KEYS
    keys = {name: value for name, value in keys_of(point).items() if name not in left_out}
    return {name: str(point[name]) for name in COLUMNS} | keys


def _words(name: str, value: str) -> str:
    if name == "threads_per_rank":
        return "1 thread a rank" if value == "1" else f"{value} threads a rank"
    if name in COLUMNS:
        return value
    return f"{name.split('.')[-1]} {value.replace(chr(34), '')}"
