"""Recorded timelines as Chrome traces."""

import json

import pandas as pd
import pytest
from strata_analysis.load import load
from strata_analysis.traces import chrome_trace, write_traces


def test_events_become_microseconds_with_steps_one_after_the_other():
    events = pd.DataFrame(
        {
            "rank": [0, 1, 0],
            "step": [3, 3, 4],
            "stream": [0, 1, 0],
            "instruction": [7, 8, 7],
            "name": ['linear "a"', "all_reduce", "linear"],
            "begin_seconds": [0.0, 0.001, 0.0005],
            "end_seconds": [0.002, 0.005, 0.001],
            "sent_bytes": [0, 64, 0],
        }
    )
    trace = json.loads(chrome_trace(events, "measured"))["traceEvents"]
    names = {
        (event["name"], event["pid"], event.get("tid")): event["args"]["name"] for event in trace if event["ph"] == "M"
    }
    assert names == {
        ("process_name", 0, None): "rank 0",
        ("thread_name", 0, 0): "stream 0",
        ("process_name", 1, None): "rank 1",
        ("thread_name", 1, 1): "stream 1",
    }
    drawn = [event for event in trace if event["ph"] == "X"]
    assert [(event["ts"], event["dur"]) for event in drawn] == [(0.0, 2000.0), (1000.0, 4000.0), (5500.0, 500.0)]
    assert drawn[0]["name"] == 'linear "a"'
    assert drawn[1] | {"args": None} == {
        "name": "all_reduce",
        "cat": "measured",
        "ph": "X",
        "ts": 1000.0,
        "dur": 4000.0,
        "pid": 1,
        "tid": 1,
        "args": None,
    }
    assert drawn[1]["args"] == {"step": 3, "instruction": 8, "bytes_sent": 64}


def test_points_with_events_have_a_file(sample, tmp_path):
    results = load(sample)
    written = write_traces(results, tmp_path / "traces")
    assert set(written) == set(results.events["point"])
    retried = results.points[results.points["attempt"] == 2].iloc[0]
    assert written[retried["point"]].name == f"{retried['point']}-2.json"
    simulated = results.points[results.points["simulated"] == 1].iloc[0]
    events = json.loads(written[simulated["point"]].read_text())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"simulated"}
    first = pytest.approx(1e6 * results.events[results.events["point"] == simulated["point"]]["end_seconds"].max())
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") == first
