"""The only reader of results: attempt files (also of killed attempts), folders of them, collected files.

Whatever it is given, it returns the same `Results`: pandas tables with the columns of results-schema/. A failed attempt
is a row with its status and message; nothing is dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from strata_analysis.schema import missing_value, schema
from strata_analysis.versions import to_current

INDEX = ["experiment_name", "point", "attempt"]
TABLES = ("steps", "events", "predictions", "memory", "evaluations")
STEP_PHASES = tuple(schema().enums["step_phase_t"])
KINDS = {  # of JSONL lines
    "step": "steps",
    "event": "events",
    "prediction": "predictions",
    "sample": "memory",
    "evaluation": "evaluations",
}
COLLECTED = "collected.h5"
COLLECTED_SCHEMA = "strata-collected"
# Ends that others may know more of than the attempt: a lost node, a time limit. What else it said of itself stands.
MAY_BE_CONCLUDED = {"killed", "preempted", "hang", "communication_error"}
POINT_ID = re.compile(r"[0-9A-Za-z_-]+")  # files are named by it
HEARTBEAT_SECONDS = 60.0  # a writer touches its status file every 5 s
ATTEMPT_FILE = re.compile(r"^(\d+)\.(h5|h5\.part|jsonl)$")


class LoadError(ValueError):
    """Nothing there, or not readable: names the path."""


@dataclass
class Results:
    """Everything known of some attempts.

    points: one row an attempt: INDEX, all root attributes, all of /summary, and
            `path`, `num_rows_from_jsonl` (rows of the tables that HDF5 had lost), `counted` (see mark_counted).
    steps, events, predictions, memory, evaluations: rows of those tables, with INDEX in front.
    """

    points: pd.DataFrame
    steps: pd.DataFrame
    events: pd.DataFrame
    predictions: pd.DataFrame
    memory: pd.DataFrame | None = None  # live bytes over time
    evaluations: pd.DataFrame | None = None  # of what is trained, on other samples

    def last(self) -> pd.DataFrame:
        """One row a point: the last of its attempts that count."""
        counted = self.points[self.points["counted"]]
        return counted[counted["attempt"] == counted.groupby(INDEX[:2])["attempt"].transform("max")]

    def steps_of(self, point: pd.Series, phase: str | None = "measured") -> pd.DataFrame:
        """Rows of /steps of one row of `points`; `phase` None: all."""
        rows = self.steps
        for key in INDEX:
            rows = rows[rows[key] == point[key]]
        return rows if phase is None else rows[rows["phase"] == phase]


def load(path: str | os.PathLike) -> Results:
    """Results below `path`: an attempt file, a collected file, or a folder of any depth above attempt files."""
    path = Path(path)
    if path.is_file():
        if path.name == COLLECTED:
            return read_collected(path)
        if not ATTEMPT_FILE.search(path.name):
            raise LoadError(f"{path}: neither an attempt (<n>.h5, <n>.h5.part, <n>.jsonl) nor {COLLECTED}")
        return _from_attempts([_Attempt.of(path)])
    attempts, damaged = [], []
    for stem in attempt_stems(path):
        try:
            attempts.append(_Attempt.of(stem))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            damaged.append(error if isinstance(error, LoadError) else LoadError(f"{stem}: cannot be read: {error!r}"))
    if not attempts:
        raise damaged[0]
    for error in damaged:
        print(f"warning: left out: {error}", file=sys.stderr)
    return _from_attempts(attempts)


def attempt_stems(path: Path) -> list[Path]:
    """`<folder>/<n>` of every attempt below a folder."""
    if not path.is_dir():
        raise LoadError(f"{path}: no such {'folder' if path.exists() else 'file or folder'}")
    stems = sorted({_stem(file) for file in path.rglob("*") if ATTEMPT_FILE.search(file.name)})
    if not stems:
        raise LoadError(f"{path}: no attempts below this folder")
    return stems


# ----------------------------------------------------------------------------------------------------- one attempt


def _stem(file: Path) -> Path:
    """`<folder>/<n>`, the same for all files of one attempt."""
    return file.with_name(ATTEMPT_FILE.search(file.name).group(1))


@dataclass
class _Attempt:
    attributes: dict
    tables: dict[str, dict[str, np.ndarray]]  # group -> column -> values
    summary: dict
    path: Path
    num_rows_from_jsonl: int = 0

    @staticmethod
    def of(file: Path) -> _Attempt:
        """Read HDF5, complete it from JSONL where the writer was killed, and settle the status."""
        stem = _stem(file) if ATTEMPT_FILE.search(file.name) else file
        finished, part, jsonl = (stem.with_name(stem.name + ending) for ending in (".h5", ".h5.part", ".jsonl"))
        hdf5 = finished if finished.exists() else part
        lines = _JsonLines.read(jsonl) if hdf5 == part and jsonl.exists() else _JsonLines()
        try:
            content = _read_hdf5(hdf5)
        except OSError as error:
            if not lines.attributes:
                raise LoadError(
                    f"{hdf5}: cannot be read ({error}), and there is no {jsonl.name} to replace it"
                ) from None
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
        content = _complete(to_current(content, str(hdf5)))
        name = content["attributes"]["point_id"]
        if not isinstance(name, str) or not POINT_ID.fullmatch(name):
            raise LoadError(f"{hdf5}: the point's id {name!r} is no name of a folder")
        attempt = _Attempt(content["attributes"], content["tables"], content["summary"], hdf5, num_added)
        if hdf5 == part:
            attempt._settle_status(stem)
        if attempt.summary["status"] in MAY_BE_CONCLUDED:
            attempt.summary |= _ending(stem) or {}
        return attempt

    def _settle_status(self, stem: Path) -> None:
        """A `.part` says running: the status file may know better, and a writer that is gone was killed."""
        file = stem.with_name(stem.name + ".status.json")
        known = _status_of(file)
        if known["status"] == "running" and not _is_alive(stem.parent, file, known):
            known = {"status": "killed", "message": f"no ending after {_num_rows(self.tables['steps'])} steps"}
        self.summary |= {"status": known["status"], "message": known["message"]}
        steps = pd.DataFrame(self.tables["steps"])
        measured = steps[steps["phase"] == "measured"]
        self.summary |= {f"num_{phase}_steps": int((steps["phase"] == phase).sum()) for phase in STEP_PHASES}
        for name in ("step_seconds_max", "compute_seconds", "communication_seconds", "exposed_communication_seconds"):
            key = "median_step_seconds" if name == "step_seconds_max" else f"median_{name}"
            self.summary[key] = float(measured[name].median()) if len(measured) else float("nan")
        if len(steps):
            self.summary |= {"first_loss": steps["loss"].iloc[0], "last_loss": steps["loss"].iloc[-1]}
            for name in ("arena_peak_bytes", "outside_arena_peak_bytes"):
                self.summary[name] = int(steps[name].max())


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


def _text(value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _plain(value):
    """An HDF5 value as Python's own type."""
    if isinstance(value, (bytes, str)):
        return _text(value)
    if isinstance(value, np.ndarray):
        return [_text(item) for item in value]
    if isinstance(value, h5py.Empty):
        return []
    return value.item()


def _values(dataset: h5py.Dataset) -> np.ndarray:
    """A dataset's values; text as str, enums by their word."""
    values = dataset[()]
    if words := h5py.check_enum_dtype(dataset.dtype):
        names = {number: word for word, number in words.items()}
        return np.array([names[int(number)] for number in np.atleast_1d(values)], dtype=object).reshape(dataset.shape)
    if h5py.check_string_dtype(dataset.dtype):
        return np.array([_text(item) for item in np.atleast_1d(values)], dtype=object).reshape(dataset.shape)
    return values


def _num_rows(columns: dict[str, np.ndarray]) -> int:
    return len(next(iter(columns.values()), ()))


def _num_rows_written(column: h5py.Dataset) -> int:
    """Rows up to the first chunk that the file does not have.

    A writer that is killed in the middle of a flush may have written how long a column is before its index names the
    newest chunk; HDF5 would give zeros for those rows.
    """
    if column.chunks is None or column.id.get_num_chunks() == -(-len(column) // column.chunks[0]):
        return len(column)
    for first in range(0, len(column), column.chunks[0]):
        if column.id.get_chunk_info_by_coord((first,)).byte_offset is None:
            return first
    return len(column)


def _read_hdf5(path: Path) -> dict:
    """Raw content of an attempt's file. Columns of a killed attempt may differ in length: rows end at the shortest."""
    with h5py.File(path, "r", locking=False) as file:
        content = {"attributes": {name: _plain(value) for name, value in file.attrs.items()}, "tables": {}}
        for group in TABLES:
            columns = dict(file[group].items()) if group in file else {}
            length = min(map(_num_rows_written, columns.values()), default=0)
            content["tables"][group] = {name: _values(column)[:length] for name, column in columns.items()}
        content["summary"] = {
            name: values.item() for name, values in ((n, _values(d)) for n, d in file.get("summary", {}).items())
        }
    return content


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


def _complete(content: dict) -> dict:
    """Add what a file of an older minor version lacks, in the schema's order; keep what a newer one adds."""
    known = schema()

    def completed(values: dict, types: dict[str, str]) -> dict:
        return {name: values.get(name, missing_value(type_name, name)) for name, type_name in types.items()} | values

    tables = {}
    for group, types in known.tables.items():
        columns = content["tables"].get(group, {})
        num_rows = _num_rows(columns)
        tables[group] = {
            name: _typed(columns[name], _dtype(type_name))
            if name in columns
            else np.full(num_rows, missing_value(type_name), _dtype(type_name))
            for name, type_name in types.items()
        }
        tables[group] |= {name: values for name, values in columns.items() if name not in types}
    return {
        "attributes": completed(content["attributes"], known.attributes),
        "tables": tables,
        "summary": completed(content["summary"], known.scalars),
    }


def _dtype(type_name: str) -> np.dtype:
    return np.dtype({"float64": "float64", "int64": "int64", "flag": "int64"}.get(type_name, object))


def _typed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Pandas refuses to make a whole number of NaN, numpy does not."""
    return values if values.dtype == dtype else pd.Series(values).astype(dtype).to_numpy()


# -------------------------------------------------------------------------------------------------- many attempts


def _from_attempts(attempts: list[_Attempt]) -> Results:
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
        indices.append(index)
    table = pd.DataFrame(points).sort_values(INDEX, ignore_index=True)
    table["counted"] = mark_counted(table)
    order = pd.DataFrame(indices).sort_values(INDEX, kind="stable").index
    tables = (_concatenate([(indices[i], attempts[i].tables[group]) for i in order], group) for group in TABLES)
    return Results(table, *tables)


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
    is_hopeless = points.groupby(INDEX[:2])["status"].transform(lambda status: not (status == "ok").any()).astype(bool)
    is_last = points["attempt"] == points.groupby(INDEX[:2])["attempt"].transform("max")
    return points.index.isin(counted) | (is_hopeless & is_last)


def _concatenate(attempts: list[tuple[dict, dict[str, np.ndarray]]], group: str) -> pd.DataFrame:
    """One table of (index, columns) of attempts, of which one without rows has no types to lend to the others.

    Column by column: a frame for every attempt would take longer than reading the files.
    """
    filled = [(index, columns) for index, columns in attempts if _num_rows(columns)] or attempts[:1]
    lengths = [_num_rows(columns) for _, columns in filled]
    table = {name: np.repeat([index[name] for index, _ in filled], lengths) for name in INDEX}
    for name in dict.fromkeys(name for _, columns in filled for name in columns):
        # Only a file of a newer minor version has columns that others lack.
        parts = [
            columns[name] if name in columns else np.full(length, np.nan)
            for (_, columns), length in zip(filled, lengths, strict=True)
        ]
        values = np.concatenate(parts)
        is_known = name in schema().tables[group]
        table[name] = pd.Series(values, dtype=values.dtype) if is_known else values
    return pd.DataFrame(table)


def read_collected(path: Path) -> Results:
    """The tables that collect.py wrote."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("schema_name") != COLLECTED_SCHEMA:
                raise LoadError(f"{path}: schema_name is not {COLLECTED_SCHEMA!r}")
            found = {}
            for group in ("points", *TABLES):
                if group not in file:  # collected before there was such a table
                    found[group] = pd.DataFrame(columns=[*INDEX, *schema().tables[group]])
                    continue
                columns = {}
                for name in file[group].attrs["columns"]:
                    values = _values(file[group][name])
                    kind = file[group][name].attrs.get("strata_type", "")
                    if kind == "list":
                        values = pd.Series([json.loads(text) for text in values], dtype=object)
                    elif kind == "flag":
                        values = values.astype(bool)
                    columns[name] = values
                found[group] = pd.DataFrame(columns)
    except OSError as error:
        raise LoadError(f"{path}: {error}") from None
    points = found["points"]
    for name, type_name in (schema().attributes | schema().scalars).items():
        if name not in points and name != "point_id":
            points[name] = [missing_value(type_name, name)] * len(points)
    points["counted"] = mark_counted(points)
    return Results(**found)
