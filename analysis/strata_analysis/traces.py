"""The recorded timelines as Chrome traces, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from strata_analysis.atomic import replace_file
from strata_analysis.load import INDEX, Results

FOLDER = "traces"


def write_traces(results: Results, folder: Path) -> dict[str, Path]:
    """One file a point, of the last attempt that counts, where it has events: point -> file."""
    written = {}
    events = dict(tuple(results.events.groupby(INDEX)))
    for _, point in results.last().iterrows():
        rows = events.get(tuple(point[key] for key in INDEX))
        if rows is None:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{point['point']}-{point['attempt']}.json"
        text = chrome_trace(rows, "simulated" if point["simulated"] else "measured")
        replace_file(file, lambda path, text=text: path.write_text(text, encoding="utf-8"))
        written[point["point"]] = file
    return written


def chrome_trace(events: pd.DataFrame, category: str) -> str:
    """Rows of /events of one attempt in the Trace Event Format: a process a rank, a thread a stream, microseconds.

    Times of events start anew with each step: on the trace's one axis a step begins where the slowest rank ended the
    one before.
    """
    ends = events.groupby("step")["end_seconds"].max().sort_index()
    begins = (ends.cumsum() - ends).to_dict()
    lines = []
    for rank, of_rank in events.groupby("rank"):
        lines.append({"name": "process_name", "ph": "M", "pid": int(rank), "args": {"name": f"rank {rank}"}})
        for stream in sorted(set(of_rank["stream"])):
            words = {"name": f"stream {stream}"}
            lines.append({"name": "thread_name", "ph": "M", "pid": int(rank), "tid": int(stream), "args": words})
    for row in events.itertuples(index=False):
        lines.append(
            {
                "name": row.name,
                "cat": category,
                "ph": "X",
                "ts": round(1e6 * (begins[row.step] + row.begin_seconds), 3),
                "dur": round(1e6 * (row.end_seconds - row.begin_seconds), 3),
                "pid": int(row.rank),
                "tid": int(row.stream),
                "args": {
                    "step": int(row.step),
                    "instruction": int(row.instruction),
                    "bytes_sent": int(row.sent_bytes),
                },
            }
        )
    text = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    return f'{{"displayTimeUnit":"ns","traceEvents":[\n{text}\n]}}\n'
