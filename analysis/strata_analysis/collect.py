"""Merges the attempts of a sweep into one file: HDF5, and the points also as CSV and Parquet.

Idempotent: the same attempts give the same bytes. Atomic: each file is written beside its place and renamed into it, so
that a reader never sees half of one. Nothing is dropped: failed points are rows with their reason, and attempts that
were tried again are rows that are not `counted`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from strata_analysis.atomic import replace_file
from strata_analysis.derive import derive
from strata_analysis.load import COLLECTED, COLLECTED_SCHEMA, INDEX, TABLES, Results, attempt_stems, load
from strata_analysis.schema import schema

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


def write_collected(path: Path, results: Results) -> None:
    """All tables, one group each, one dataset a column. Text is UTF-8, lists are JSON text, flags are 0 or 1."""
    # Made in memory: on a disk that is full HDF5 cannot even close what it has open, and says so for each object.
    with h5py.File(path.name, "w", libver=("earliest", "v110"), driver="core", backing_store=False) as file:
        file.attrs["schema_name"] = COLLECTED_SCHEMA
        file.attrs["schema_version"] = schema().version
        for group_name in ("points", *TABLES):
            table = getattr(results, group_name)
            group = file.create_group(group_name)
            group.attrs.create("columns", list(table.columns), dtype=h5py.string_dtype())
            for name in table.columns:
                _write_column(group, name, table[name])
        file.flush()
        image = file.id.get_file_image()
    path.write_bytes(image)


def _write_column(group: h5py.Group, name: str, column: pd.Series) -> None:
    kind = ""
    if column.map(lambda value: isinstance(value, list)).any():
        column, kind = column.map(json.dumps), "list"
    elif column.dtype == bool:
        column, kind = column.astype(np.int8), "flag"
    if not pd.api.types.is_numeric_dtype(column.dtype):
        dataset = group.create_dataset(name, data=[str(text) for text in column], dtype=h5py.string_dtype())
    else:
        dataset = group.create_dataset(name, data=column.to_numpy())
    if kind:
        dataset.attrs["strata_type"] = kind
