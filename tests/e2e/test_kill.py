"""SIGKILL of one rank at moments uniform over the measured steps, rank 0 in half of them.

STRATA_KILLS sets how often (default 6).
"""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import h5py
from conftest import TEXT

NUM_KILLS = int(os.environ.get("STRATA_KILLS", "6"))
RANKS = 3


def rank_processes(binary, file):
    """rank -> pid of the running ranks; the processes beside them are no ranks."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].decode() != binary or str(file).encode() not in words:
                continue
            environment = (process / "environ").read_bytes().split(b"\0")
            if (process / "comm").read_text().strip() != "strata":
                continue  # stands by
        except (OSError, ValueError):
            continue
        rank = next(word for word in environment if word.startswith(b"PMI_RANK="))
        found[int(rank.split(b"=")[1])] = int(process.name)
    return found


def test_a_data_file_that_is_cut_short_has_a_message_of_its_own(strata, experiment, tmp_path):
    data = tmp_path / "own.txt"
    data.write_bytes(TEXT.read_bytes())
    file = experiment(ranks=1, replace=[("steps = 8", "steps = 1000000"), (str(TEXT), str(data))])
    run = subprocess.Popen(
        [strata.binary, "run", str(file), "--results", str(tmp_path / "results"), "--quiet"],
        stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not any(path.read_text().count('"measured"') for path in tmp_path.glob("results/e2e/*/1.jsonl")):
            assert time.monotonic() < deadline and run.poll() is None, "the run did not start"
            time.sleep(0.02)
        os.truncate(data, 0)
        assert run.wait(timeout=30) == -signal.SIGBUS
    finally:
        run.kill()
    (file,) = tmp_path.glob("results/e2e/*/1.status.json")
    deadline = time.monotonic() + 10
    while (status := json.loads(file.read_text()))["status"] == "running":
        assert time.monotonic() < deadline, "nobody named the end"
        time.sleep(0.02)
    assert status["status"] == "killed"
    assert "a data file was cut short during the run" in status["message"]


def test_a_killed_rank_ends_the_job_and_loses_nothing_old(strata, experiment, tmp_path):
    file = experiment(ranks=RANKS, replace=[("steps = 8", "steps = 1000000")])
    generator = random.Random(7)
    launcher = os.environ.get("MPIEXEC", "mpiexec")
    lost_rows = []
    for number in range(NUM_KILLS):
        victim = 0 if number % 2 == 0 else generator.randrange(1, RANKS)
        results = tmp_path / f"results{number}"
        with open(tmp_path / "output", "w") as output:
            job = subprocess.Popen(
                [launcher, "-n", str(RANKS), strata.binary, "run", str(file), "--results", str(results), "--quiet"],
                stdout=output,
                stderr=output,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        try:
            deadline = time.monotonic() + 60
            while not any(path.read_text().count('"measured"') for path in results.glob("e2e/*/1.jsonl")):
                assert time.monotonic() < deadline, "the job did not start"
                time.sleep(0.05)
            time.sleep(generator.uniform(0.0, 2.0))
            ranks = rank_processes(strata.binary, file)
            assert len(ranks) == RANKS
            os.kill(ranks[victim], signal.SIGKILL)
            killed_at = time.time()
            job.wait(timeout=10)
            while rank_processes(strata.binary, file):
                assert time.time() - killed_at < 10, "a survivor is still there"
                time.sleep(0.02)
        finally:
            job.kill()
            for process in rank_processes(strata.binary, file).values():
                os.kill(process, signal.SIGKILL)

        folder = next(results.glob("e2e/????????????"))
        deadline = time.monotonic() + 10
        while (status := json.loads((folder / "1.status.json").read_text()))["status"] == "running":
            assert time.monotonic() < deadline, "nobody named the end"
            time.sleep(0.02)
        assert status["status"] in ("killed", "node_failure", "communication_error"), status

        with h5py.File(folder / "1.h5.part", locking=False) as part:
            num_rows = min(len(column) for column in part["steps"].values())
        rows = [json.loads(line) for line in (folder / "1.jsonl").read_text().splitlines() if line.endswith("}")]
        steps = [row for row in rows if row["kind"] == "step"]
        assert num_rows <= len(steps)
        lost = steps[num_rows:]
        lost_rows.append(len(lost))
        # Rows reach both files a few at a time, at most a second after their step.
        assert all(killed_at - row["unix_seconds"] <= 1.0 for row in lost), (killed_at, lost[0])
    print(f"{NUM_KILLS} kills; rows that HDF5 lost against JSONL: {lost_rows}")


def last_words_of(pid):
    """The processes that stand by for a rank, to say how it ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and (process / "comm").read_text().strip() == "strata-lastword":
                found.append(int(process.name))
        except (OSError, ValueError):
            continue
    return found


def test_a_run_without_a_launcher_ends_its_step_when_it_is_told_to(strata, experiment, tmp_path):
    file = experiment(ranks=1, replace=[("steps = 8", "steps = 1000000")])
    run = subprocess.Popen(
        [strata.binary, "run", str(file), "--results", str(tmp_path / "results"), "--quiet"],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not any(path.read_text().count('"measured"') for path in tmp_path.glob("results/e2e/*/1.jsonl")):
            assert time.monotonic() < deadline and run.poll() is None, "the run did not start"
            time.sleep(0.02)
        run.send_signal(signal.SIGUSR1)
        _, error = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 1, error
    (status,) = tmp_path.glob("results/e2e/*/1.status.json")
    assert json.loads(status.read_text())["status"] == "timeout"


def test_a_run_goes_on_without_its_last_word(strata, experiment, tmp_path):
    file = experiment(ranks=1, replace=[("steps = 8", "steps = 200")])
    run = subprocess.Popen(
        [strata.binary, "run", str(file), "--results", str(tmp_path / "results"), "--quiet"],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not any(path.read_text().count('"measured"') for path in tmp_path.glob("results/e2e/*/1.jsonl")):
            assert time.monotonic() < deadline and run.poll() is None, "the run did not start"
            time.sleep(0.02)
        (stands_by,) = last_words_of(run.pid)
        os.kill(stands_by, signal.SIGKILL)
        _, error = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 0, error
    (status,) = tmp_path.glob("results/e2e/*/1.status.json")
    assert json.loads(status.read_text())["status"] == "ok"
