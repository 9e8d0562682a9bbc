"""A sweep over 1, 2 and 4 nodes through what happens to sweeps: killed ranks, lost nodes, limits, preemption."""

import json
import os
import re
import signal

import h5py
import pytest
from conftest import SITE, wait_until

TEXT = """
name = "faults"

[model]
name = "mlp"
widths = [192, 64, 64, 64, 64, 10]

[data]
format = "synthetic"

[resources]
ranks_per_node = 1

[measure]
peak = "quick"
warmup_steps = 2
max_steps = 1000000
timeline_steps = 0

[job]
time_limit_minutes = 4
max_running = 2

[sweep]
zip = [ {{ {axes} }} ]
"""

STRATEGIES = ("ddp", "gpipe")
NODES = (1, 2, 4)
SEEDS = (1, 2, 3, 4)
# Steps. Slurm takes half a minute to see that a node is gone; until then its ranks run on. What must last does so by
# the latency of its links, not by its work: it takes as long on a machine that has other things to do, and must end
# before the time limit there too.
SHORT, LONG, LONGER, ENDLESS = 20, 800, 1500, 100_000_000
LATENCY_US = 10_000
# (nodes, strategy, seed) -> what happens to it
TIMEOUT = (1, "ddp", 1)
OOM = (1, "gpipe", 2)
KILLED = (2, "ddp", 1)
PREEMPTED = (2, "gpipe", 1)
LOST_NODE = (4, "ddp", 1)


def write_experiment(file):
    points = [(nodes, strategy, seed) for nodes in NODES for strategy in STRATEGIES for seed in SEEDS]
    steps = {TIMEOUT: ENDLESS, KILLED: LONG, PREEMPTED: LONG, LOST_NODE: LONGER}
    latent = (KILLED, PREEMPTED, LOST_NODE)
    axes = {
        "resources.nodes": [nodes for nodes, _, _ in points],
        "strategy.name": [strategy for _, strategy, _ in points],
        "train.seed": [seed for _, _, seed in points],
        "train.steps": [steps.get(point, SHORT) for point in points],
        "train.global_batch": [3072 if point == TIMEOUT else 48 for point in points],
        "communication.emulated_link.alpha_us": [LATENCY_US if point in latent else 0 for point in points],
        "communication.emulated_link.gbit_per_s": [100 if point in latent else 0 for point in points],
        "resources.memory_gib": [0.0001 if point == OOM else 1.0 for point in points],
    }
    file.write_text(TEXT.format(axes=", ".join(f'"{key}" = {json.dumps(values)}' for key, values in axes.items())))
    return points


class Sweep:
    def __init__(self, testbed, strata, folder):
        self.testbed, self.strata, self.folder = testbed, strata, folder
        self.results = folder / "results" / "faults"
        self.file = folder / "faults.toml"
        self.points = write_experiment(self.file)

    def __call__(self, *words, code=0, environment=None):
        ended = self.testbed.run(self.strata, *words, cwd=self.folder, environment=environment, timeout=180)
        assert ended.returncode == code, f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def ids(self):
        """(nodes, strategy, seed) -> id"""
        expanded = json.loads(self("expand", self.file, "--json"))["points"]
        return dict(zip(self.points, (point["id"] for point in expanded), strict=True))

    def states(self):
        """id -> (state, tries, message), as `strata status --all` prints them; and its last line."""
        *lines, summary = self.testbed.run(
            self.strata, "status", self.results, "--all", cwd=self.folder
        ).stdout.splitlines()
        rows = (re.split(r"\s{2,}", line, maxsplit=4) for line in lines[1:])
        return {row[0]: (row[1], int(row[2]), row[4]) for row in rows}, summary

    def running_attempt(self, point_id):
        """Status file of the attempt that runs now; None."""
        files = sorted((self.results / point_id).glob("*.status.json"))
        said = json.loads(files[-1].read_text()) if files else {"status": None}
        return said if said["status"] == "running" else None

    def wait_for_steps(self, point_id, seconds=120):
        """The attempt, once it has trained some steps."""

        def trained():
            files = list((self.results / point_id).glob("*.jsonl"))
            return files and sum('"kind":"step"' in line.replace(" ", "") for line in files[-1].open()) >= 3

        wait_until(trained, seconds, f"{point_id} trains")
        return self.running_attempt(point_id)

    def drained(self):
        return not self.testbed.check("squeue", "--noheader", "--format=%i").strip()


@pytest.fixture
def sweep(testbed, strata, tmp_path):
    return Sweep(testbed, strata, tmp_path)


def nodes_of(testbed, said):
    """Names of the nodes of the job that an attempt ran in."""
    job = said["job"].rsplit(".", 1)[0]
    names = testbed.check("squeue", "--noheader", "--format=%N", f"--jobs={job}").strip()
    return testbed.check("scontrol", "show", "hostnames", names).split()


def test_twenty_four_points_and_five_mishaps(sweep, testbed):
    ids = sweep.ids()
    assert len(set(ids.values())) == 24
    # What the caller has in his environment changes nothing.
    output = sweep(
        "submit",
        sweep.file,
        "--all",
        "--site",
        "testbed",
        environment={"SBATCH_TIMELIMIT": "33", "SBATCH_PARTITION": "urgent"},
    )
    jobs = re.findall(r"^job (\d+):", output, re.MULTILINE)
    assert len(jobs) == 3
    scripts = sorted(sweep.results.glob("submissions/1/array-*.sh"))
    assert len(scripts) == 3
    for script in scripts:
        assert "#SBATCH --array=0-7%2\n" in script.read_text()
    for job in jobs:
        facts = testbed.job(job)
        assert (facts["TimeLimit"], facts["Partition"]) == ("00:04:00", SITE["partition"])

    # One rank is killed.
    os.kill(sweep.wait_for_steps(ids[KILLED])["pid"], signal.SIGKILL)

    # One job is preempted, and requeued by Slurm.
    said = sweep.wait_for_steps(ids[PREEMPTED])
    urgent = testbed.check(
        "sbatch", "--parsable", "--partition=urgent", "--exclusive", f"--nodelist={','.join(nodes_of(testbed, said))}",
        "--time=1", "--output=/dev/null", "--wrap=sleep 5",
    ).strip()  # fmt: skip
    wait_until(lambda: testbed.job(urgent)["JobState"] == "RUNNING", 60, "the urgent job runs")
    state, _, message = wait_until(
        lambda: sweep.states()[0].get(ids[PREEMPTED], ("",))[0] == "pending" and sweep.states()[0][ids[PREEMPTED]],
        60,
        "the preempted point waits",
    )
    assert state == "pending"
    assert "preempted, waits to start again" in message

    # One slurmd is killed, and with it what ran there.
    said = sweep.wait_for_steps(ids[LOST_NODE], 400)
    lost = nodes_of(testbed, said)[-1]
    os.kill(int((testbed.folder / f"slurmd-{lost}.pid").read_text()), signal.SIGKILL)
    wait_until(lambda: testbed.node_states()[lost].startswith("down"), 60, f"{lost} is down")
    message = wait_until(
        lambda: "node_failure" in (m := sweep.states()[0][ids[LOST_NODE]][2]) and m, 60, "the loss is named"
    )
    assert lost in message
    restart(testbed, lost)

    wait_until(sweep.drained, 500, "the queue is empty")
    states, summary = sweep.states()
    assert {ids[point]: states[ids[point]][0] for point in (KILLED, TIMEOUT, OOM)} == {
        ids[KILLED]: "killed",
        ids[TIMEOUT]: "timeout",
        ids[OOM]: "oom",
    }, states
    assert {state for point, (state, _, _) in states.items() if point not in (ids[KILLED], ids[TIMEOUT], ids[OOM])} == {
        "ok"
    }, states
    assert states[ids[PREEMPTED]][1] == states[ids[LOST_NODE]][1] == 2
    assert sum(tries for _, tries, _ in states.values()) == 26
    assert summary == "faults: 24 points: 21 ok, 1 killed, 1 oom, 1 timeout"

    # What is missing, and nothing else.
    sweep("status", sweep.results, code=1)
    dry = sweep("resume", sweep.results, "--dry-run")
    assert "2 arrays, 3 launches" in dry
    sweep("resume", sweep.results, "--class", "killed")
    wait_until(sweep.drained, 120, "the queue is empty")
    states, summary = sweep.states()
    assert summary == "faults: 24 points: 22 ok, 1 oom, 1 timeout"
    assert states[ids[KILLED]][1] == 2
    assert sum(tries for _, tries, _ in states.values()) == 27

    # Nothing is lost, nothing is counted twice, and a second time gives the same.
    sweep("collect", sweep.results)
    first = (sweep.results / "collected.h5").read_bytes()
    sweep("collect", sweep.results)
    assert (sweep.results / "collected.h5").read_bytes() == first
    with h5py.File(sweep.results / "collected.h5") as file:
        points = [text.decode() for text in file["points/point"]]
        status = [text.decode() for text in file["points/status"]]
    assert len(points) == 27
    ids_to_points = {point_id: point for point, point_id in ids.items()}
    assert set(points) == set(ids.values())
    assert status.count("ok") == 22
    ends = {(ids_to_points[point], text) for point, text in zip(points, status, strict=True) if text != "ok"}
    assert ends == {
        (KILLED, "killed"),
        (TIMEOUT, "timeout"),
        (OOM, "oom"),
        (PREEMPTED, "preempted"),
        (LOST_NODE, "node_failure"),
    }


def restart(testbed, node):
    """slurmd of a node, as testbed.py had started it."""
    number = int(node[1:])
    testbed.check("slurmd", "-N", node, node=number)
    wait_until(lambda: not testbed.node_states()[node].startswith("down"), 30, f"{node} is back")
