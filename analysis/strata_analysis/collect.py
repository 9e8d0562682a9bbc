"""Merges the attempts of a sweep into one file: HDF5, and the points also as CSV and Parquet.

Idempotent: the same attempts give the same bytes. Atomic: each file is written beside its place and renamed into it, so
that a reader never sees half of one. Nothing is dropped: failed points are rows with their reason, and attempts that
were tried again are rows that are not `counted`.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pandas as pd

from strata_analysis.atomic import replace_file
from strata_analysis.collected_file import write_collected
from strata_analysis.derive import Numbers
from strata_analysis.load import COLLECTED, INDEX, attempt_stems, load
from strata_analysis.peaks import with_best_peaks

# Of rows that are not read a second time: on a shared file system opening a file takes longer than reading a short one.
HELD_BYTES = 1 << 26
# Which folder the sweep was in is no fact about the sweep.
PATH_COLUMNS = ["path"]


def collect(results_folder: str | os.PathLike) -> list[Path]:
    """Write collected.h5, .csv and .parquet into the folder of each experiment below `results_folder`.

    Returns the files written, in that order.
    """
    written = []
    for folder in experiment_folders(Path(results_folder)):
        results = load(folder, HELD_BYTES)
        results.points = results.points.drop(columns=PATH_COLUMNS)
        points = with_best_peaks(results.points)
        numbers = Numbers(points)
        written.append(folder / COLLECTED)
        # The rows of an attempt are read once for both: what they are, and what follows from them.
        replace_file(written[-1], partial(write_collected, results=results, see_steps=numbers.add))
        table = flat(numbers.beside(points))
        written.append(folder / "collected.csv")
        replace_file(written[-1], partial(table.to_csv, index=False))
        written.append(folder / "collected.parquet")
        replace_file(written[-1], partial(_write_parquet, table))
    return written


def experiment_folders(path: Path) -> list[Path]:
    """`path` itself if it holds points, else the experiments in it."""
    return sorted({stem.parents[1] for stem in attempt_stems(path)})


def flat(points: pd.DataFrame) -> pd.DataFrame:
    """Lists as JSON text, INDEX first: what CSV and Parquet can hold."""
    table = points.copy()
    for name in table:
        if table[name].map(lambda value: isinstance(value, list)).any():
            table[name] = table[name].map(json.dumps)
    return table[[*INDEX, *(name for name in table if name not in INDEX)]]


def _write_parquet(table: pd.DataFrame, path: Path) -> None:
    path.write_bytes(table.to_parquet(index=False))
