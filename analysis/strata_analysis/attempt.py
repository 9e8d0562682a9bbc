"""One attempt's files, read by need: what is said of it as a whole at once, rows of its tables column by column.

An attempt that ended well never changes, so that its rows stay in its file until they are asked for. One whose writer
did not finish is read at once: HDF5, completed from JSONL, with a status settled from what the files tell.
"""

from __future__ import annotations

import fcntl
import json
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from strata_analysis import hdf5
from strata_analysis.errors import LoadError
from strata_analysis.schema import dtype_name, missing_value, schema
from strata_analysis.statistics import median
from strata_analysis.versions import is_current, to_current

TABLES = ("steps", "events", "predictions", "memory", "evaluations")
STEP_PHASES = tuple(schema().enums["step_phase_t"])
KINDS = {  # of JSONL lines
    "step": "steps",
    "event": "events",
    "prediction": "predictions",
    "sample": "memory",
    "evaluation": "evaluations",
}
# Ends that others may know more of than the attempt: a lost node, a time limit. What else it said of itself stands.
MAY_BE_CONCLUDED = {"killed", "preempted", "hang", "communication_error"}
POINT_ID = re.compile(r"[0-9A-Za-z_-]+")  # files are named by it
HEARTBEAT_SECONDS = 60.0  # a writer touches its status file every 5 s
ATTEMPT_FILE = re.compile(r"^(\d+)\.(h5|h5\.part|jsonl)$")


def stem_of(file: Path) -> Path:
    """`<folder>/<n>`, the same for all files of one attempt."""
    return file.with_name(ATTEMPT_FILE.search(file.name).group(1))


@dataclass
class Attempt:
    path: Path
    attributes: dict
    summary: dict
    num_rows: dict[str, int]  # of each table
    later_columns: dict[str, dict[str, np.dtype]]  # of each table, those that a newer minor version adds
    num_rows_from_jsonl: int = 0
    # The rows, where they are not left in the file: group -> column -> values.
    held: dict[str, dict[str, np.ndarray]] | None = None

    @staticmethod
    def of(file: Path, most_held_bytes: int = 0) -> Attempt:
        """`file`: any of the attempt's files, or `<folder>/<n>`. Rows of no more than `most_held_bytes` are not left in
        the file."""
        stem = stem_of(file) if ATTEMPT_FILE.search(file.name) else file
        finished, part = (stem.with_name(stem.name + ending) for ending in (".h5", ".h5.part"))
        attempt = _of_finished(finished, most_held_bytes) if finished.exists() else _of_part(part, stem)
        name = attempt.attributes["point_id"]
        if not isinstance(name, str) or not POINT_ID.fullmatch(name):
            raise LoadError(f"{attempt.path}: the point's id {name!r} is no name of a folder")
        if attempt.summary["status"] in MAY_BE_CONCLUDED:
            attempt.summary |= _ending(stem) or {}
        return attempt

    def columns(self, group: str) -> list[str]:
        return [*schema().tables[group], *self.later_columns[group]]

    @property
    def num_bytes(self) -> int:
        """Of all rows: a number has eight, and so has a text, since rows share their words."""
        return 8 * sum(num_rows * len(self.columns(group)) for group, num_rows in self.num_rows.items())

    def rows(self, group: str, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Those columns of a table, or all."""
        names = list(names or self.columns(group))
        return {name: values for _, name, values in self.read({group: names})}

    def read(self, wanted: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str, np.ndarray]]:
        """(table, column, values) of those columns of tables, one after the other; the file is opened once."""
        if self.held is not None or not any(self.num_rows[group] for group in wanted):
            for group, names in wanted.items():
                yield from (
                    (group, name, self._column((self.held or {}).get(group, {}), group, name)) for name in names
                )
            return
        with h5py.File(self.path, "r", locking=False) as file:
            for group, names in wanted.items():
                table = hdf5.group_of(file, group) if self.num_rows[group] else None
                stored = set(hdf5.names_in(table))
                for name in names:
                    found = {name: hdf5.column_of(table, name)} if name in stored else {}
                    yield group, name, self._column(found, group, name)

    def _column(self, columns: dict[str, np.ndarray], group: str, name: str) -> np.ndarray:
        try:
            return _column(columns, group, name, self.num_rows[group])
        except LoadError as error:
            raise LoadError(f"{self.path}: {error}") from None


def _of_finished(path: Path, most_held_bytes: int) -> Attempt:
    try:
        with h5py.File(path, "r", locking=False) as file:
            attributes = hdf5.attributes_of(file)
            if not is_current(attributes, str(path)):
                return _held(to_current(_content_of(file), str(path)), path)
            summary = hdf5.scalars_of(hdf5.group_of(file, "summary"))
            num_rows, later_columns = {}, {}
            for group, types in schema().tables.items():
                table = hdf5.group_of(file, group)
                names = hdf5.names_in(table)
                # All columns of a file that was closed are as long as its first, the dimension.
                first = next((name for name in types if name in names), None)
                num_rows[group] = hdf5.num_rows_written(table, first) if first else 0
                later_columns[group] = {name: hdf5.dtype_of(table, name) for name in names if name not in types}
            attempt = Attempt(
                path,
                _completed(attributes, schema().attributes),
                _completed(summary, schema().scalars),
                num_rows,
                later_columns,
            )
            if attempt.num_bytes <= most_held_bytes:
                filled = {group: hdf5.group_of(file, group) for group, count in num_rows.items() if count}
                attempt.held = {
                    group: {name: hdf5.column_of(table, name) for name in hdf5.names_in(table)}
                    for group, table in filled.items()
                }
            return attempt
    except OSError as error:
        raise LoadError(f"{path}: cannot be read ({error})") from None


def _of_part(path: Path, stem: Path) -> Attempt:
    """Read HDF5, complete it from JSONL where the writer was killed, and settle the status."""
    jsonl = stem.with_name(stem.name + ".jsonl")
    lines = _JsonLines.read(jsonl) if jsonl.exists() else _JsonLines()
    try:
        with h5py.File(path, "r", locking=False) as file:
            content = _content_of(file)
    except OSError as error:
        if not lines.attributes:
            raise LoadError(f"{path}: cannot be read ({error}), and there is no {jsonl.name} to replace it") from None
        content = {"attributes": lines.attributes, "tables": {}, "summary": {}}
    num_added = 0
    for group in TABLES:
        columns = content["tables"].get(group, {})
        added = lines.rows[group][_num_rows(columns) :]
        num_added += len(added)
        if added:
            rows = pd.concat([pd.DataFrame(columns), pd.DataFrame(added)], ignore_index=True)
            content["tables"][group] = {name: rows[name].to_numpy() for name in rows}
    content["summary"] |= lines.summary
    attempt = _held(to_current(content, str(path)), path)
    attempt.num_rows_from_jsonl = num_added
    attempt.summary |= _settled(attempt.held["steps"], stem)
    return attempt


def _held(content: dict, path: Path) -> Attempt:
    """`content` of the present major version."""
    tables = {}
    for group, types in schema().tables.items():
        columns = content["tables"].get(group, {})
        names = [*types, *(name for name in columns if name not in types)]
        tables[group] = {name: _column(columns, group, name, _num_rows(columns)) for name in names}
    return Attempt(
        path,
        _completed(content["attributes"], schema().attributes),
        _completed(content["summary"], schema().scalars),
        {group: _num_rows(columns) for group, columns in tables.items()},
        {
            group: {name: values.dtype for name, values in columns.items() if name not in schema().tables[group]}
            for group, columns in tables.items()
        },
        held=tables,
    )


def _content_of(file: h5py.File) -> dict:
    """All of a file. Columns of a killed attempt may differ in length: rows end at the shortest."""
    tables = {}
    for group in TABLES:
        table = hdf5.group_of(file, group)
        names = hdf5.names_in(table)
        length = min((hdf5.num_rows_written(table, name) for name in names), default=0)
        tables[group] = {name: hdf5.column_of(table, name)[:length] for name in names}
    summary = hdf5.scalars_of(hdf5.group_of(file, "summary"))
    return {"attributes": hdf5.attributes_of(file), "tables": tables, "summary": summary}


def _num_rows(columns: dict[str, np.ndarray]) -> int:
    return len(next(iter(columns.values()), ()))


# ----------------------------------------------------------------------------------------------------- how it ended


def _settled(steps: dict[str, np.ndarray], stem: Path) -> dict:
    """What the summary of a `.part` would say, which says running: the status file may know better, and a writer that
    is gone was killed.
    """
    file = stem.with_name(stem.name + ".status.json")
    known = _status_of(file)
    num_steps = _num_rows(steps)
    if known["status"] == "running" and not _is_alive(stem.parent, file, known):
        known = {"status": "killed", "message": f"no ending after {num_steps} steps"}
    measured = steps["phase"] == "measured"
    summary = {"status": known["status"], "message": known["message"]}
    summary |= {f"num_{phase}_steps": int((steps["phase"] == phase).sum()) for phase in STEP_PHASES}
    for name in ("step_seconds_max", "compute_seconds", "communication_seconds", "exposed_communication_seconds"):
        key = "median_step_seconds" if name == "step_seconds_max" else f"median_{name}"
        summary[key] = median(steps[name][measured]).value
    if num_steps:
        summary |= {"first_loss": steps["loss"][0], "last_loss": steps["loss"][-1]}
        summary |= {name: int(steps[name].max()) for name in ("arena_peak_bytes", "outside_arena_peak_bytes")}
    return summary


def _status_of(file: Path) -> dict:
    """What the status file says; of one that is missing or damaged what an attempt under way would say."""
    known = {"status": "running", "message": ""}
    try:
        said = json.loads(file.read_text(encoding="utf-8", errors="replace"))
        if isinstance(said, dict) and isinstance(said.get("status"), str):
            known |= said
    except (FileNotFoundError, ValueError):
        pass
    return known


def _ending(stem: Path) -> dict | None:
    """What the harness found out about an attempt that could not name its own end: a lost node, a time limit."""
    file = stem.parent.parent / "submissions" / "endings.json"
    if not stem.name.isdigit() or not file.exists():
        return None
    return _endings(file, file.stat().st_mtime).get((stem.parent.name, int(stem.name)))


@cache
def _endings(file: Path, _modified: float) -> dict:
    try:
        return {
            (ending["point"], ending["attempt"]): {"status": ending["status"], "message": ending["message"]}
            for ending in json.loads(file.read_text(encoding="utf-8"))
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"warning: {file}: not read: {error}", file=sys.stderr)
        return {}


def _is_alive(folder: Path, status_file: Path, status: dict) -> bool:
    """Whether the attempt's writer still runs: by its lock on its own host, by its heartbeat elsewhere."""
    if not status_file.exists():
        return False
    if status.get("host") == socket.gethostname():
        try:
            with open(folder / "lock", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        except BlockingIOError:
            return f"pid {status.get('pid')} " in (folder / "lock").read_text(encoding="utf-8")
        except OSError:
            pass  # no lock here: the heartbeat decides
    return abs(time.time() - status_file.stat().st_mtime) < HEARTBEAT_SECONDS


# ------------------------------------------------------------------------------------------------------------ JSONL


@dataclass
class _JsonLines:
    """The rows of `<n>.jsonl`. A last line that was cut by a kill or a full disk is left out."""

    attributes: dict = field(default_factory=dict)
    rows: dict[str, list[dict]] = field(default_factory=lambda: {group: [] for group in TABLES})
    summary: dict = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> _JsonLines:
        found = _JsonLines()
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    values = json.loads(line)
                except json.JSONDecodeError:
                    if line.endswith("\n"):
                        raise LoadError(f"{path}: a line that is not JSON: {line[:60]!r}") from None
                    break
                kind = values.pop("kind")
                if kind == "attempt":
                    found.attributes = _without_nulls(values, schema().attributes)
                elif kind == "end":
                    found.summary = _without_nulls(values, schema().scalars)
                else:
                    rows = found.rows[KINDS[kind]]
                    row = _without_nulls(values, schema().tables[KINDS[kind]])
                    rows.append(row if kind == "step" else {kind: len(rows)} | row)
        return found


def _without_nulls(values: dict, types: dict[str, str]) -> dict:
    """JSON has no NaN: it was written as null. Flags are numbers in HDF5."""
    plain = {name: float("nan") if value is None else value for name, value in values.items()}
    return {name: int(value) if types.get(name) == "flag" else value for name, value in plain.items()}


# ------------------------------------------------------------------------------------------------ as the schema says


def _completed(values: dict, types: dict[str, str]) -> dict:
    """With what a file of an older minor version lacks, in the schema's order; what a newer one adds is kept."""
    return {name: values.get(name, missing_value(type_name, name)) for name, type_name in types.items()} | values


def _column(columns: dict[str, np.ndarray], group: str, name: str, num_rows: int) -> np.ndarray:
    """A column of `columns`, or what stands for it where a file has none."""
    type_name = schema().tables[group].get(name)
    if name not in columns:
        return (
            np.full(num_rows, missing_value(type_name), dtype_name(type_name))
            if type_name
            else np.full(num_rows, np.nan)
        )
    values = columns[name]
    if len(values) < num_rows:
        raise LoadError(f"column {name} of /{group} has {len(values)} of {num_rows} rows")
    return _typed(values[:num_rows], np.dtype(dtype_name(type_name))) if type_name else values[:num_rows]


def _typed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Pandas refuses to make a whole number of NaN, numpy does not."""
    return values if values.dtype == dtype else pd.Series(values).astype(dtype).to_numpy()
