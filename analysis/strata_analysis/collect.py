"""Merges the attempts of a sweep into one file: HDF5, and the points also as CSV and Parquet.

Idempotent: the same attempts give the same bytes. Atomic: each file is written beside its place and renamed into it, so
that a reader never sees half of one. Nothing is dropped: failed points are rows with their reason, and attempts that
were tried again are rows that are not `counted`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd

from strata_analysis.atomic import replace_file
from strata_analysis.collected_file import write_collected
from strata_analysis.derive import derive
from strata_analysis.load import COLLECTED, INDEX, attempt_stems, load

# Which folder the sweep was in is no fact about the sweep.
PATH_COLUMNS = ["path"]


def collect(results_folder: str | os.PathLike) -> list[Path]:
    """Write collected.h5, .csv and .parquet into the folder of each experiment below `results_folder`.

    Returns the files written, in that order.
    """
    written = []
    for folder in experiment_folders(Path(results_folder)):
        results = load(folder)
        results.points = results.points.drop(columns=PATH_COLUMNS)
        table = flat(derive(results))
        for file, write in (
            (folder / COLLECTED, lambda path, results=results: write_collected(path, results)),
            (folder / "collected.csv", lambda path, table=table: table.to_csv(path, index=False)),
            (folder / "collected.parquet", lambda path, table=table: path.write_bytes(table.to_parquet(index=False))),
        ):
            replace_file(file, write)
            written.append(file)
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
