"""A function of many things, computed by several processes at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor

Item = TypeVar("Item")
Result = TypeVar("Result")

# More would wait for the one that takes their results, and a login node is others' too.
MOST_PROCESSES = 8
# Batches of results that wait for their turn, by process: what is not yet used is in memory.
AHEAD = 2

# What a process that was forked is to compute.
_function: Callable | None = None
_items: Sequence = ()


def each(function: Callable[[Item], Result], items: Sequence[Item], batch: int = 1) -> Iterator[Result]:
    """function(item) of each, in their order; an exception ends it at its place.

    One process a core, MOST_PROCESSES at most. They are forked and take `batch` items at a time: function and items may
    be anything, since they are not sent; results are pickled. Where there is one core, or no second batch, all is
    computed here. So it is in such a process.
    """
    num_processes = min(len(os.sched_getaffinity(0)), -(-len(items) // batch), MOST_PROCESSES)
    if num_processes < 2 or _function is not None:
        yield from map(function, items)
        return
    # Loaded here: they take a while, and most commands need none of them.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    executor = ProcessPoolExecutor(num_processes, multiprocessing.get_context("fork"), _begin, (function, items))
    try:
        yield from _in_order(executor, range(0, len(items), batch), batch, AHEAD * num_processes)
    finally:
        executor.shutdown(cancel_futures=True)


def _in_order(executor: Executor, begins: range, batch: int, most_pending: int) -> Iterator:
    pending: deque = deque()
    for begin in begins:
        pending.append(executor.submit(_compute, begin, begin + batch))
        if len(pending) > most_pending:
            yield from pending.popleft().result()
    while pending:
        yield from pending.popleft().result()


def _begin(function: Callable, items: Sequence) -> None:
    global _function, _items
    _function, _items = function, items


def _compute(begin: int, end: int) -> list:
    return [_function(item) for item in _items[begin:end]]
