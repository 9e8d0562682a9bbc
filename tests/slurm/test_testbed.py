"""The testbed itself: nodes of their own, a wire of the rate asked for, and what a real cluster does to jobs."""

import os
import stat
import subprocess
import sys
import threading

import pytest
from conftest import PRIVATE, SCRIPT, script, wait_until

# A receiver says when it listens, and then when its first and its last byte came in.
RECEIVER = """
import socket, sys, time
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("listening", flush=True)
connection, _ = server.accept()
connection.recv(1)
begin = time.monotonic()
while connection.recv(1 << 20):
    pass
print(begin, time.monotonic())
"""
SENDER = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.sendall(bytes(int(sys.argv[3])))
"""
NUM_BYTES = 16 << 20  # many times what the token buckets and the sockets hold


def mbit_per_second(testbed, pairs):
    """Of all (sender, receiver) of @p pairs together, from the first byte to the last."""
    begins, ends = [], []

    def transfer(i, sender, receiver):
        port = 5300 + i
        words = [sys.executable, "-c", RECEIVER, str(port)]
        with subprocess.Popen(
            [SCRIPT, "exec", "--node", str(receiver), *words], stdout=subprocess.PIPE, text=True
        ) as listener:
            assert listener.stdout.readline() == "listening\n"
            words = [sys.executable, "-c", SENDER, f"10.78.0.{receiver}", port, NUM_BYTES]
            testbed.check(*words, node=sender)
            begin, end = map(float, listener.stdout.readline().split())
            begins.append(begin)
            ends.append(end)

    threads = [threading.Thread(target=transfer, args=(i, *pair)) for i, pair in enumerate(pairs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(pairs) * NUM_BYTES * 8 / (max(ends) - min(begins)) / 1e6


def test_up_within_seconds(testbed):
    assert testbed.node_states() == {f"n{i}": "idle" for i in range(1, 5)}
    assert testbed.up_seconds < 20


def test_each_node_has_its_own_network(testbed):
    text = testbed.check("srun", "-N4", "-n4", "sh", "-c", "echo $SLURMD_NODENAME $(readlink /proc/self/ns/net)")
    names, namespaces = zip(*(line.split() for line in text.splitlines()), strict=True)
    assert sorted(names) == ["n1", "n2", "n3", "n4"]
    assert len(set(namespaces)) == 4


@pytest.mark.parametrize(
    "pairs", [[(1, 2)], [(1, 3), (2, 3)], [(1, 2), (1, 3)]], ids=["pair", "into one", "out of one"]
)
def test_the_wire_has_the_rate_that_was_asked_for(testbed, pairs):
    total = mbit_per_second(testbed, pairs)
    assert total < 1.03 * testbed.rate_mbit  # the headers' share is below it, what sockets hold is above
    assert total > 0.5 * testbed.rate_mbit  # a loaded machine may be slower, hardly by this much


def test_a_second_one_is_refused_in_words(testbed):
    ended = script("up")
    assert ended.returncode == 2
    assert "a testbed is up since" in ended.stderr and str(testbed.folder) in ended.stderr
    assert set(testbed.node_states().values()) == {"idle"}


# As nobody: each way to get at somebody else's testbed, and what came of it.
ATTACKS = """
import os, socket, sys
folder, private = sys.argv[1:]
for attack in (
    lambda: os.listdir(folder),
    lambda: os.listdir(private),
    lambda: open(f"{folder}/munge.key", "rb").read(),
    lambda: socket.socket(socket.AF_UNIX).connect(f"{folder}/munge.socket"),
    lambda: open(f"{folder}/slurm.conf", "a"),
    lambda: open(f"{private}/testbed.json", "r+"),
    lambda: os.rename(private, private + "-away"),
    lambda: os.kill(int(sys.stdin.readline()), 15),
):
    try:
        print("done", attack())
    except PermissionError:
        print("refused")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="acts as another user, which needs root")
def test_another_user_gets_at_nothing_of_it(testbed):
    pid = (testbed.folder / "slurmctld.pid").read_text()
    for file, mode in ((testbed.folder, 0o700), (PRIVATE, 0o700), (testbed.folder / "munge.key", 0o400)):
        assert stat.S_IMODE(file.stat().st_mode) == mode
    above = [path for path in testbed.folder.parents if not path.stat().st_mode & stat.S_IXOTH]
    modes = [path.stat().st_mode for path in above]
    for path in above:  # the testbed's own mode has to be enough
        path.chmod(0o755)
    try:
        words = ["/usr/bin/env", "python3", "-c", ATTACKS, str(testbed.folder), str(PRIVATE)]
        ended = subprocess.run(
            words,
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
            input=pid,
            capture_output=True,
            text=True,
            timeout=180,
        )
    finally:
        for path, mode in zip(above, modes, strict=True):
            path.chmod(mode)
    assert ended.stdout.split("\n") == ["refused"] * 8 + [""], ended
    assert set(testbed.node_states().values()) == {"idle"}


def test_status_shows_nodes_and_network(testbed):
    text = script("status").stdout
    assert "400mbit in and out of each node" in text
    assert f"SLURM_CONF={testbed.folder}/slurm.conf" in text


def test_an_array_runs_with_a_throttle(testbed, tmp_path):
    command = f"touch {tmp_path}/$SLURM_ARRAY_TASK_ID"
    testbed.check("sbatch", "--wait", "--array=0-5%2", "--output=/dev/null", "--wrap", command, timeout=270)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3", "4", "5"]


def submit(testbed, *words):
    return int(testbed.check("sbatch", "--parsable", "--output=/dev/null", *words))


def test_an_urgent_job_preempts_and_the_other_is_requeued(testbed):
    victim = submit(testbed, "-N4", "--exclusive", "--wrap", "sleep 100")
    wait_until(lambda: testbed.job(victim)["JobState"] == "RUNNING", 20, "the first job runs")
    urgent = submit(testbed, "-N4", "--exclusive", "--partition=urgent", "--wrap", "sleep 1")
    wait_until(lambda: testbed.job(urgent)["JobState"] in ("RUNNING", "COMPLETED"), 30, "the urgent job runs")
    wait_until(lambda: testbed.job(victim)["Restarts"] == "1", 20, "the first job is requeued")
    testbed.check("scancel", victim)
    wait_until(lambda: set(testbed.node_states().values()) == {"idle"}, 30, "the nodes are idle again")


def test_more_memory_than_asked_for_ends_a_job(testbed):
    hungry = f"{sys.executable} -c 'import time; block = bytearray(300 << 20); time.sleep(60)'"
    job = submit(testbed, "--mem=100", "--wrap", hungry)
    wait_until(lambda: testbed.job(job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"), 30, "it is ended")
    assert testbed.job(job)["JobState"] in ("OUT_OF_MEMORY", "CANCELLED", "FAILED")
    assert "exceeded" in "".join(log.read_text() for log in testbed.folder.glob("slurmd-*.log"))


def test_a_dead_node_is_noticed(testbed):
    job = submit(testbed, "--nodelist=n4", "--no-requeue", "--wrap", "sleep 100")
    wait_until(lambda: testbed.job(job)["JobState"] == "RUNNING", 20, "the job runs")
    testbed.check("sh", "-c", f"kill -KILL $(cat {testbed.folder}/slurmd-n4.pid)")
    wait_until(lambda: testbed.node_states()["n4"].startswith("down"), 60, "the node is down")
    wait_until(lambda: testbed.job(job)["JobState"] == "NODE_FAIL", 30, "the job's node has failed")
    testbed.check("slurmd", "-N", "n4", node=4)
    wait_until(lambda: testbed.node_states()["n4"] == "idle", 30, "the node is back")
