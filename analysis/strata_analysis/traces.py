"""The recorded timelines as Chrome traces, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from strata_analysis.atomic import replace_file
from strata_analysis.load import Results

FOLDER = "traces"


def write_traces(results: Results, folder: Path) -> dict[str, Path]:
    """One file a point, of the last attempt that counts, where it has events: point -> file."""
    written = {}
    points = results.last()
    for (_, point), events in zip(points.iterrows(), results.rows_of("events", points), strict=True):
        if len(events["step"]) == 0:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{point['point']}-{point['attempt']}.json"
        text = chrome_trace(events, "simulated" if point["simulated"] else "measured")
        replace_file(file, lambda path, text=text: path.write_text(text, encoding="utf-8"))
        written[point["point"]] = file
    return written


def chrome_trace(events: Mapping[str, Sequence], category: str) -> str:
    """Columns of /events of one attempt in the Trace Event Format: a process a rank, a thread a stream, microseconds.

    Times of events start anew with each step: on the trace's one axis a step begins where the slowest rank ended the
    one before.
    """
    columns = {name: np.asarray(values) for name, values in events.items()}
    steps, place = np.unique(columns["step"], return_inverse=True)
    ends = np.full(len(steps), -np.inf)
    np.maximum.at(ends, place, columns["end_seconds"])
    columns["step_begins"] = (np.cumsum(ends) - ends)[place]
    lines = []
    streams = sorted(set(zip(columns["rank"].tolist(), columns["stream"].tolist(), strict=True)))
    for rank, of_rank in itertools.groupby(streams, key=lambda place: place[0]):
        lines.append({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}})
        for _, stream in of_rank:
            words = {"name": f"stream {stream}"}
            lines.append({"name": "thread_name", "ph": "M", "pid": rank, "tid": stream, "args": words})
    wanted = (
        "name",
        "step",
        "step_begins",
        "begin_seconds",
        "end_seconds",
        "rank",
        "stream",
        "instruction",
        "sent_bytes",
    )
    rows = zip(*(columns[name].tolist() for name in wanted), strict=True)
    for name, step, step_begins, begin, end, rank, stream, instruction, sent in rows:
        lines.append(
            {
                "name": name,
                "cat": category,
                "ph": "X",
                "ts": round(1e6 * (step_begins + begin), 3),
                "dur": round(1e6 * (end - begin), 3),
                "pid": rank,
                "tid": stream,
                "args": {"step": step, "instruction": instruction, "bytes_sent": sent},
            }
        )
    text = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    return f'{{"displayTimeUnit":"ns","traceEvents":[\n{text}\n]}}\n'
