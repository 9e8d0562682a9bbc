"""What a sweep asks the server of a file system's metadata: so much for each point and no more, and readers at once.

A parallel or network file system answers for all of its users, some milliseconds a call.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from metadata_calls import MetadataServer  # noqa: E402

SWEEP = """
name = "sweep"

[model]
name = "mlp-tiny"

[data]
format = "synthetic"

[resources]
ranks_per_node = 1

[train]
global_batch = 8
steps = 2

[measure]
warmup_steps = 1
peak = "quick"

[strategy]
name = "single"

[sweep.product]
"train.seed" = {seeds}
"""

# Calls a point at most. `run` is the whole of a job: what it has to launch, its record, the run.
MOST = {
    "submit": {"open": 2, "rename": 1},
    "run": {"open": 26, "stat": 18, "list": 2, "make": 1, "rename": 3},
    "status": {"open": 2, "stat": 1, "list": 1},
    "collect": {"open": 3, "stat": 2, "list": 5},
}


@pytest.fixture
def asked(strata, tmp_path):
    """asked(folder, *command) -> what ended, its calls below the folder by kind, and how many waited at once."""

    def ask(folder, *command, wait_ms=0):
        server = MetadataServer(tmp_path / "page", folder)
        server.begin(wait_ms=wait_ms)
        ended = subprocess.run(
            list(map(str, command)),
            cwd=folder, capture_output=True, text=True, timeout=120, env=os.environ | server.environment,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended, server.counts, server.most_waiting

    ask.binary = strata.binary
    return ask


def submitted(asked, folder, num_points):
    """A folder with a sweep of so many points, submitted and not run; the calls."""
    folder.mkdir()
    (folder / "sweep.toml").write_text(SWEEP.format(seeds=list(range(1, num_points + 1))))
    _, calls, _ = asked(folder, asked.binary, "submit", "sweep.toml", "--site", "local", "--no-plan", "--emit")
    return calls


def calls_of(asked, folder, num_points):
    """By verb and kind, of a sweep from its beginning to its table."""
    calls = {"submit": submitted(asked, folder, num_points), "run": {}}
    for task in range(num_points):
        _, of_task, _ = asked(folder, "bash", "results/sweep/submissions/1/array-0.sh", task)
        calls["run"] = {kind: calls["run"].get(kind, 0) + count for kind, count in of_task.items()}
    for verb in ("status", "collect"):
        _, calls[verb], _ = asked(folder, asked.binary, verb, "results/sweep")
    return calls


def test_calls_rise_with_nothing_but_points(asked, tmp_path):
    few, more, many = (calls_of(asked, tmp_path / str(n), n) for n in (2, 3, 4))
    a_point = {}
    for verb in MOST:
        a_point[verb] = {kind: more[verb][kind] - few[verb][kind] for kind in few[verb]}
        assert {kind: many[verb][kind] - more[verb][kind] for kind in few[verb]} == a_point[verb], verb
        for kind, count in a_point[verb].items():
            assert count <= MOST[verb].get(kind, 0), (verb, a_point[verb])


def put_attempts(sweep):
    """A status file and a job's record for each point, as runs would have left them."""
    manifest = json.loads((sweep / "submissions/1/array-0.json").read_text())
    for t, task in enumerate(manifest["tasks"]):
        ((point, _, _),) = task["launches"]
        (sweep / point).mkdir()
        said = {"status": "ok", "message": "", "rank": 0, "pid": 1, "host": "n1", "time": "t"}
        said |= {"launch": f"1/0.{t}.0", "job": "1_0.0", "nodes": ["n1"]}
        (sweep / point / "1.status.json").write_text(json.dumps(said))
        (sweep / f"submissions/1/jobs/0.{t}.log").write_text("2026-01-01T00:00:00Z start 1_0.0 n1\n")


def test_status_waits_for_many_answers_at_once(asked, tmp_path):
    folder = tmp_path / "many"
    submitted(asked, folder, 200)
    put_attempts(folder / "results" / "sweep")
    ended, calls, most_waiting = asked(folder, asked.binary, "status", "results/sweep", wait_ms=5)
    assert ended.stdout == "sweep: 200 points: 200 ok\n"
    assert sum(calls.values()) < 200 * 4 + 20, calls
    # Of 32 at most; one after the other, 10,000 points with 2 ms a call would take 80 s.
    assert most_waiting >= 16
