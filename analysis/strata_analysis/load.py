"""The only reader of results: attempt files (also of killed attempts), folders of them, collected files.

Whatever it is given, it returns the same `Results`: pandas tables with the columns of results-schema/. A failed attempt
is a row with its status and message; nothing is dropped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import h5py
import numpy as np
import pandas as pd

from strata_analysis import hdf5, in_processes
from strata_analysis.attempt import ATTEMPT_FILE, TABLES, Attempt, stem_of
from strata_analysis.errors import LoadError
from strata_analysis.schema import dtype_name, missing_value, schema

T = TypeVar("T")
INDEX = ["experiment_name", "point", "attempt"]
COLLECTED = "collected.h5"
COLLECTED_SCHEMA = "strata-collected-2"
# So many attempts a process takes at a time.
ATTEMPTS_AT_ONCE = 16
# Has texts in its tables where the newer one has numbers of WORDS.
OLDER_COLLECTED_SCHEMA = "strata-collected"
WORDS = ".words"  # behind a column's name: the texts that its numbers count


class Results:
    """Everything known of some attempts.

    points: one row an attempt: INDEX, all root attributes, all of /summary, and
            `path`, `num_rows_from_jsonl` (rows of the tables that HDF5 had lost), `counted` (see mark_counted).
    steps, events, predictions, memory, evaluations: rows of those tables, with INDEX in front. Each is read when it is
            first asked for, of all attempts, and kept; `rows_of` has one attempt's rows at a time and keeps none.
    """

    def __init__(
        self,
        points: pd.DataFrame,
        steps: pd.DataFrame | None = None,
        events: pd.DataFrame | None = None,
        predictions: pd.DataFrame | None = None,
        memory: pd.DataFrame | None = None,
        evaluations: pd.DataFrame | None = None,
        source: AttemptTables | CollectedTables | None = None,
    ):
        """A table that is not given is that of `source`; without one it has no rows."""
        self.points = points
        self.source = source or AttemptTables([])
        given = dict(zip(TABLES, (steps, events, predictions, memory, evaluations), strict=True))
        vars(self).update({group: table for group, table in given.items() if table is not None})

    steps = cached_property(lambda self: self.source.table("steps"))
    events = cached_property(lambda self: self.source.table("events"))
    predictions = cached_property(lambda self: self.source.table("predictions"))
    memory = cached_property(lambda self: self.source.table("memory"))  # live bytes over time
    evaluations = cached_property(lambda self: self.source.table("evaluations"))  # of what is trained, on other samples

    def last(self) -> pd.DataFrame:
        """One row a point: the last of its attempts that count."""
        counted = self.points[self.points["counted"]]
        return counted[counted["attempt"] == counted.groupby(INDEX[:2])["attempt"].transform("max")]

    def rows_of(
        self, group: str, points: pd.DataFrame, names: Iterable[str] | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """Of each row of `points`, in their order, the rows of a table: columns `names` of them, or all."""
        indices = points[INDEX].itertuples(index=False, name=None)
        if group not in vars(self) and isinstance(self.source, AttemptTables):
            yield from self.source.each_rows(group, list(indices), names)
            return
        table = getattr(self, group)
        places = table.groupby(INDEX, sort=False).indices
        columns = {name: table[name].to_numpy() for name in names or table.columns.drop(INDEX)}
        for index in indices:
            chosen = places.get(index, [])
            yield {name: values[chosen] for name, values in columns.items()}

    def table_of(self, group: str, point: pd.Series) -> pd.DataFrame:
        """Rows of a table of one row of `points`, without INDEX."""
        (columns,) = self.rows_of(group, pd.DataFrame([point[INDEX]]))
        return pd.DataFrame(columns)

    def steps_of(self, point: pd.Series, phase: str | None = "measured") -> pd.DataFrame:
        """Rows of /steps of one row of `points`; `phase` None: all."""
        rows = self.table_of("steps", point)
        return rows if phase is None else rows[rows["phase"] == phase]


_DERIVED: WeakKeyDictionary[Results, tuple[pd.DataFrame, dict]] = WeakKeyDictionary()


def derived_once(results: Results, what: Hashable, derive: Callable[[], T]) -> T:
    """What `derive` computes of `results`, of which `what` is the name: once, as long as they have the same points."""
    points, known = _DERIVED.get(results, (None, {}))
    if points is not results.points:
        known = {}
        _DERIVED[results] = (results.points, known)
    if what not in known:
        known[what] = derive()
    return known[what]


def load(path: str | os.PathLike, held_bytes: int = 0) -> Results:
    """Results below `path`: an attempt file, a collected file, or a folder of any depth above attempt files.

    Of a folder's n attempts those that ended well and have at most `held_bytes` / n bytes of rows are read at once,
    while their files are open anyway.
    """
    path = Path(path)
    if path.is_file():
        if path.name == COLLECTED:
            return read_collected(path)
        if not ATTEMPT_FILE.search(path.name):
            raise LoadError(f"{path}: neither an attempt (<n>.h5, <n>.h5.part, <n>.jsonl) nor {COLLECTED}")
        return _from_attempts([Attempt.of(path)])
    stems = attempt_stems(path)
    most_held_bytes = held_bytes // len(stems)
    found = list(in_processes.each(lambda stem: _attempt_or_error(stem, most_held_bytes), stems, ATTEMPTS_AT_ONCE))
    attempts = [attempt for attempt in found if isinstance(attempt, Attempt)]
    damaged = [error for error in found if isinstance(error, LoadError)]
    if not attempts:
        raise damaged[0]
    for error in damaged:
        print(f"warning: left out: {error}", file=sys.stderr)
    return _from_attempts(attempts)


def _attempt_or_error(stem: Path, most_held_bytes: int) -> Attempt | LoadError:
    try:
        return Attempt.of(stem, most_held_bytes)
    except LoadError as error:
        return error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return LoadError(f"{stem}: cannot be read: {error!r}")


def attempt_stems(path: Path) -> list[Path]:
    """`<folder>/<n>` of every attempt below a folder."""
    if not path.is_dir():
        raise LoadError(f"{path}: no such {'folder' if path.exists() else 'file or folder'}")
    stems = sorted({stem_of(file) for file in path.rglob("*") if ATTEMPT_FILE.search(file.name)})
    if not stems:
        raise LoadError(f"{path}: no attempts below this folder")
    return stems


def _from_attempts(attempts: list[Attempt]) -> Results:
    points, indices = [], []
    for attempt in attempts:
        index = {
            "experiment_name": attempt.attributes["experiment_name"],
            "point": attempt.attributes["point_id"],
            "attempt": attempt.attributes["attempt"],
        }
        facts = {name: value for name, value in attempt.attributes.items() if name not in ("point_id", *index)}
        extra = {"path": str(attempt.path), "num_rows_from_jsonl": attempt.num_rows_from_jsonl}
        points.append(index | facts | attempt.summary | extra)
        indices.append(tuple(index.values()))
    table = pd.DataFrame(points).sort_values(INDEX, ignore_index=True)
    table["counted"] = mark_counted(table)
    order = sorted(range(len(attempts)), key=indices.__getitem__)
    return Results(table, source=AttemptTables([(indices[i], attempts[i]) for i in order]))


def mark_counted(points: pd.DataFrame) -> pd.Series:
    """Which attempts' numbers count, so that what was tried again is not counted twice.

    Of a point's attempts the last one that ended well; in a head-to-head job the last one of each block, as every block
    is a run of its own. A point whose last good attempt was in blocks counts its blocks alone. A point with no good
    attempt is represented by its last one, whose status says why there is no number.
    """
    good = points[points["status"] == "ok"].sort_values("attempt")
    last_good = good.groupby(INDEX[:2])["block"].transform("last")
    good = good[(good["block"] >= 0) == (last_good >= 0)]
    counted = set(good.groupby([*INDEX[:2], "block_job", "block"]).tail(1).index)
    is_hopeless = ~(points["status"] == "ok").groupby([points[key] for key in INDEX[:2]]).transform("any")
    is_last = points["attempt"] == points.groupby(INDEX[:2])["attempt"].transform("max")
    return points.index.isin(counted) | (is_hopeless & is_last)


class AttemptTables:
    """Rows of attempts, read from their files at each call."""

    def __init__(self, attempts: list[tuple[tuple, Attempt]]):
        """(INDEX, attempt), in the order of rows."""
        self.attempts = attempts
        self._by_index = dict(attempts)

    def each_rows(
        self, group: str, indices: Sequence[tuple], names: Iterable[str] | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """Of one attempt at a time, without INDEX."""
        wanted = list(names) if names is not None else None
        yield from in_processes.each(lambda index: self._by_index[index].rows(group, wanted), indices, ATTEMPTS_AT_ONCE)

    def each_read(self, wanted: Mapping[str, Iterable[str]]) -> Iterator[list[tuple[str, str, np.ndarray]]]:
        """Of each attempt, in the order of rows, (table, column, values) of those columns."""
        yield from in_processes.each(lambda known: list(known[1].read(wanted)), self.attempts, ATTEMPTS_AT_ONCE)

    def with_rows(self, group: str) -> list[tuple[tuple, Attempt]]:
        return [(index, attempt) for index, attempt in self.attempts if attempt.num_rows[group]]

    def dtypes(self, group: str) -> dict[str, np.dtype]:
        """Of all columns behind INDEX. One that only files of a newer minor version have is NaN in the others."""
        found = {name: np.dtype(dtype_name(type_name)) for name, type_name in schema().tables[group].items()}
        filled = [attempt.later_columns[group] for _, attempt in self.with_rows(group)]
        for name in dict.fromkeys(name for later in filled for name in later):
            dtypes = {later.get(name, np.dtype(np.float64)) for later in filled}
            found[name] = np.dtype(object) if np.dtype(object) in dtypes else np.result_type(*dtypes)
        return found

    def table(self, group: str) -> pd.DataFrame:
        """Of all attempts. Column by column: a frame for every attempt would take longer than reading the files."""
        filled = self.with_rows(group)
        lengths = [attempt.num_rows[group] for _, attempt in filled]
        ends = np.cumsum(lengths, dtype=int)
        table = {}
        for place, name in enumerate(INDEX):
            values = [index[place] for index, _ in filled]
            table[name] = np.repeat(np.array(values, dtype=object if name != "attempt" else np.int64), lengths)
        columns = {name: np.empty(sum(lengths), dtype) for name, dtype in self.dtypes(group).items()}
        for (_, attempt), end, length in zip(filled, ends, lengths, strict=True):
            for _, name, values in attempt.read({group: columns}):
                columns[name][end - length : end] = values
        for name, values in columns.items():
            # Texts of the schema stay objects.
            table[name] = pd.Series(values, dtype=values.dtype) if name in schema().tables[group] else values
        return pd.DataFrame(table, copy=False)


class CollectedTables:
    """Rows of a collected file."""

    def __init__(self, path: Path):
        self._path = path

    def table(self, group: str) -> pd.DataFrame:
        with h5py.File(self._path, "r", locking=False) as file:
            if group not in file:  # collected before there was such a table
                return pd.DataFrame(columns=[*INDEX, *schema().tables[group]])
            return pd.DataFrame({name: _column(file[group], name) for name in file[group].attrs["columns"]}, copy=False)


def read_collected(path: Path) -> Results:
    """The tables that collect.py wrote."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("schema_name") not in (COLLECTED_SCHEMA, OLDER_COLLECTED_SCHEMA):
                raise LoadError(f"{path}: schema_name is not {COLLECTED_SCHEMA!r}")
        tables = CollectedTables(path)
        points = tables.table("points")
    except OSError as error:
        raise LoadError(f"{path}: {error}") from None
    for name, type_name in (schema().attributes | schema().scalars).items():
        if name not in points and name != "point_id":
            points[name] = [missing_value(type_name, name)] * len(points)
    points["counted"] = mark_counted(points)
    return Results(points, source=tables)


def _column(group: h5py.Group, name: str) -> np.ndarray | pd.Series:
    values = hdf5.column_of(group.id, name)
    kind = group[name].attrs.get("strata_type", "")
    if kind == "words":
        return hdf5.column_of(group.id, name + WORDS)[values]
    if kind == "list":
        return pd.Series([json.loads(text) for text in values], dtype=object)
    return values.astype(bool) if kind == "flag" else values
