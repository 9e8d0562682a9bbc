"""Curves of live bytes over time, from the table /memory: of one rank, and of workers that each run a shifted copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from strata_analysis.load import Results

CATEGORIES = ("parameter", "gradient", "optimizer", "activation", "workspace", "communication")


@dataclass
class Curve:
    """`values[i]` bytes from `seconds[i]` on, the last one until `end`."""

    seconds: np.ndarray
    values: np.ndarray
    end: float

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """Values at moments that are none before the first one."""
        return self.values[np.searchsorted(self.seconds, seconds, side="right") - 1]


def curves_of(results: Results, point: pd.Series, categories: tuple[str, ...] = CATEGORIES) -> dict[int, Curve]:
    """By rank, of one row of `points`: bytes of `categories` together over the steps that were recorded."""
    rows = results.table_of("memory", point)
    columns = [f"{name}_bytes" for name in categories]
    return {
        int(rank): Curve(
            of_rank["seconds"].to_numpy(), of_rank[columns].sum(axis=1).to_numpy(), float(of_rank["seconds"].iloc[-1])
        )
        for rank, of_rank in rows.groupby("rank")
    }


def one_step(results: Results, point: pd.Series, categories: tuple[str, ...]) -> Curve | None:
    """Rank 0's only recorded step, from its beginning; None where not exactly one was recorded."""
    events = results.table_of("events", point)
    of_rank = events[events["rank"] == 0]
    curves = curves_of(results, point, categories)
    if of_rank["step"].nunique() != 1 or 0 not in curves:
        return None
    curves[0].end = float(of_rank["end_seconds"].max())
    return curves[0]


def mean_of_workers(curve: Curve, num_workers: int) -> Curve:
    """Bytes a worker where `num_workers` run one step again and again, each an equal part of it behind the one before.

    The extrapolation of Fournier et al.'s figure 4. `curve` is of one step, which begins at 0 and lasts to its end.
    """
    shifts = curve.end * np.arange(num_workers) / num_workers
    edges = np.unique((curve.seconds[None, :] + shifts[:, None]) % curve.end)
    edges = np.unique(np.append(edges, 0.0))
    # In the middle between two edges: at an edge a rounding error would pick one side.
    middles = (edges + np.append(edges[1:], curve.end)) / 2
    total = sum(curve.at((middles - shift) % curve.end) for shift in shifts)
    return Curve(edges, total / num_workers, curve.end)


def sum_of_ranks(curves: list[Curve]) -> Curve:
    """Over the time in which all are known."""
    begin = max(curve.seconds[0] for curve in curves)
    end = min(curve.end for curve in curves)
    edges = np.unique(np.concatenate([[begin], *(curve.seconds for curve in curves)]))
    edges = edges[(begin <= edges) & (edges <= end)]
    return Curve(edges, sum(curve.at(edges) for curve in curves), end)


def live_stage_activations(num_workers: int) -> tuple[int, int]:
    """Most stages' activations at one time step over all workers, simultaneous and cyclic, counted from the schedule.

    As many stages as workers, a time step the pass of one: worker i takes the forward of stage p at time step 2i + p,
    modulo the 2N of a training step, and its backwards after them. A stage's activations live from its forward on and
    through its backward.
    """
    steps = range(2 * num_workers)
    of_phase = [min(phase + 1, 2 * num_workers - phase) for phase in steps]
    cyclic = [sum(of_phase[(now - 2 * i) % len(steps)] for i in range(num_workers)) for now in steps]
    return num_workers * max(of_phase), max(cyclic)
