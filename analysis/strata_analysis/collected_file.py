"""Writes collected.h5: all attempts of a sweep, with all of their rows.

A group a table, a dataset a column. Text is UTF-8, lists are JSON text, flags are 0 or 1. The tables of rows are long
and name few things: a text there is an int32, the place of its word in the dataset `<column>.words`. Rows go from the
attempts' files into this one piece by piece, so that a sweep may be larger than the memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from strata_analysis.attempt import TABLES, Attempt
from strata_analysis.hdf5_output import Hdf5Output
from strata_analysis.load import COLLECTED_SCHEMA, INDEX, WORDS, AttemptTables, Results
from strata_analysis.schema import schema

ROWS_AT_ONCE = 1 << 16


def write_collected(path: Path, results: Results, see_steps: Callable[[dict[str, np.ndarray]], None]) -> None:
    """`see_steps` is given the rows of /steps of each attempt, in the order of `results.points`."""
    with Hdf5Output(path) as output, h5py.File(output, "w", libver=("earliest", "v110")) as file:
        file.attrs["schema_name"] = COLLECTED_SCHEMA
        file.attrs["schema_version"] = schema().version
        points = _group(file, "points", list(results.points.columns))
        for name in results.points.columns:
            _write_facts(points, name, results.points[name])
        writers = {group: _columns(file, group, results.source) for group in TABLES}
        wanted = {group: [name for name in columns if name not in INDEX] for group, columns in writers.items()}
        read = results.source.each_read(wanted)
        for (index, attempt), columns in zip(results.source.attempts, read, strict=True):
            see_steps(_write_attempt(writers, index, attempt, columns))
        for columns in writers.values():
            for column in columns.values():
                column.close()


def _group(file: h5py.File, name: str, columns: list[str]) -> h5py.Group:
    group = file.create_group(name)
    group.attrs.create("columns", columns, dtype=h5py.string_dtype())
    return group


def _write_facts(group: h5py.Group, name: str, column: pd.Series) -> None:
    """A column of /points."""
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


def _columns(file: h5py.File, group: str, tables: AttemptTables) -> dict[str, _Column]:
    num_rows = sum(attempt.num_rows[group] for _, attempt in tables.attempts)
    dtypes = dict(zip(INDEX, map(np.dtype, (object, object, np.int64)), strict=True)) | tables.dtypes(group)
    parent = _group(file, group, list(dtypes))
    return {name: _Column(parent, name, dtype, num_rows) for name, dtype in dtypes.items()}


def _write_attempt(
    writers: dict[str, dict[str, _Column]], index: tuple, attempt: Attempt, read: list[tuple[str, str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What was `read` of all tables; returns the rows of /steps."""
    for group, columns in writers.items():
        for name, value in zip(INDEX, index, strict=True):
            columns[name].repeat(value, attempt.num_rows[group])
    steps = {}
    for group, name, values in read:
        writers[group][name].append(values)
        if group == "steps":
            steps[name] = values
    return steps


class _Column:
    """A column of a table while it is written, from its first row to its last, whose number is known before."""

    def __init__(self, group: h5py.Group, name: str, dtype: np.dtype, num_rows: int):
        self._group, self._name = group, name
        self._number_of: dict[str, int] | None = {} if dtype.kind == "O" else None
        self._dtype = np.dtype(np.int32) if dtype.kind == "O" else dtype
        self._dataset = group.create_dataset(name, (num_rows,), self._dtype)
        self._pending: list[np.ndarray] = []
        self._num_pending = 0
        self._num_written = 0

    def append(self, values: np.ndarray) -> None:
        if self._number_of is not None:
            # What stands for a text that an older file does not have is no text.
            texts = (values if values.dtype.kind == "O" else values.astype(str)).tolist()
            for text in dict.fromkeys(texts):
                self._number_of.setdefault(text, len(self._number_of))
            values = np.fromiter(map(self._number_of.__getitem__, texts), np.int32, len(texts))
        self._add(values)

    def repeat(self, value, count: int) -> None:
        if self._number_of is not None:
            value = self._number_of.setdefault(value, len(self._number_of))
        self._add(np.full(count, value, self._dtype))

    def close(self) -> None:
        self._write_pending()
        if self._number_of is not None:
            self._dataset.attrs["strata_type"] = "words"
            words = [str(text) for text in self._number_of]
            self._group.create_dataset(self._name + WORDS, data=words, dtype=h5py.string_dtype())

    def _add(self, values: np.ndarray) -> None:
        """One write for many short attempts."""
        if len(values) == 0:
            return
        self._pending.append(values)
        self._num_pending += len(values)
        if self._num_pending >= ROWS_AT_ONCE:
            self._write_pending()

    def _write_pending(self) -> None:
        if self._num_pending:
            end = self._num_written + self._num_pending
            self._dataset[self._num_written : end] = np.concatenate(self._pending)
            self._pending, self._num_pending, self._num_written = [], 0, end
