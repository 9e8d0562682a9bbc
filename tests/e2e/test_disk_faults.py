"""Every writer on a disk that fails at its n-th write, close, rename, fsync or flock, for every n.

What holds for each of them: no success is told that is none, nothing that was there before is lost or half, and what
went wrong is one message. Of a process that is killed only that nothing earlier is lost, and that the
next one succeeds.

Of writes, of which HDF5 makes hundreds, every third; all with STRATA_DEEP=1.
"""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import h5py
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from disk_faults import KILL, KINDS, BrokenDisk, was_killed  # noqa: E402

BUILD = Path(os.environ.get("STRATA_BUILD", ROOT / "build" / "cpu"))
ERRORS = {
    "write": ("EIO", "ENOSPC", KILL),
    "close": ("EIO", "EDQUOT", KILL),
    "rename": ("EIO", "ENOSPC", KILL),
    "fsync": ("EIO", "EDQUOT", KILL),
    "flock": ("EIO", "ENOLCK", KILL),
}


WRITES_APART = 1 if os.environ.get("STRATA_DEEP") == "1" else 3
STATUSES = {"ok": 1, "recording_error": 13}


def contents(folder):
    """path below the folder -> hash, of files; locks say who has them last."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in ("lock", "status.lock")
    }


def messages(error):
    return [line for line in error.splitlines() if line.startswith("strata:") and "without a lock" not in line]


def faults_at_every_call(disk, run, kinds=KINDS):
    """(kind, number, error) of all calls that run() makes on a good disk, one after the other broken there.

    With each call comes the next of the kind's errors.
    """
    disk.mend()
    run()
    counts = disk.counts
    for kind in kinds:
        assert counts[kind] > 0, kind
        errors = itertools.cycle(ERRORS[kind])
        for number in range(1, counts[kind] + 1, WRITES_APART if kind == "write" else 1):
            error = next(errors)
            disk.break_at(kind, number, error)
            yield kind, number, error


@pytest.fixture
def disk(tmp_path):
    """A folder in memory where there is one: a real disk takes its time for each fsync."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        disk = BrokenDisk(tmp_path / "page", Path(folder))
        disk.folder = Path(folder)
        yield disk


def expect_a_good_attempt(point, attempt, num_steps):
    with h5py.File(point / f"{attempt}.h5", "r", locking=False) as file:
        assert len(file["steps/loss"]) == num_steps
        assert file["summary/status"][()] == 1
    assert json.loads((point / f"{attempt}.status.json").read_text())["status"] == "ok"
    lines = [json.loads(line) for line in (point / f"{attempt}.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines].count("step") == num_steps


def test_an_attempt_and_its_checkpoint(disk, tmp_path):
    point = disk.folder / "point"
    good = tmp_path / "good"
    command = [BUILD / "tests" / "write_attempt"]
    subprocess.run([*command, good], check=True, timeout=30)
    shutil.move(good / "checkpoints/step_3.h5", good / "checkpoints/step_2.h5")
    before = contents(good)

    def run(environment=None):
        return subprocess.run(
            [*command, point], capture_output=True, text=True, timeout=30, env=os.environ | (environment or {})
        )

    def renew():
        shutil.rmtree(point, ignore_errors=True)
        shutil.copytree(good, point)

    renew()
    outcomes = Counter()
    for fault in faults_at_every_call(disk, lambda: run(disk.environment)):
        renew()
        ended = run(disk.environment)
        assert disk.hits > 0, fault
        after = contents(point)
        assert before.items() <= after.items(), fault
        status = point / "2.status.json"
        said = json.loads(status.read_text())["status"] if status.exists() else "none"
        if ended.returncode == 0:
            expect_a_good_attempt(point, 2, 3)
        elif fault[2] == KILL:
            assert was_killed(ended.returncode), (fault, ended)
        else:
            assert ended.returncode == 2, (fault, ended)
            assert len(messages(ended.stderr)) == 1, (fault, ended.stderr)
            assert said != "ok", fault
            if (point / "2.h5").exists():
                with h5py.File(point / "2.h5", "r", locking=False) as file:
                    assert file["summary/status"][()] == STATUSES[said], fault
        if said == "ok":
            expect_a_good_attempt(point, 2, 3)
        if (checkpoint := point / "checkpoints/step_3.h5").exists():
            with h5py.File(checkpoint, "r", locking=False) as file:
                for state in ("value", "m"):
                    dataset = file[f"parameters/weight/{state}"]
                    assert (dataset[:] == range(1, 3001)).all() and dataset.attrs["checksum"] != 0, fault
        if fault[2] == KILL:
            ended = run()
            assert ended.returncode == 0, (fault, ended.stderr)
            assert not list(point.glob("checkpoints/*.part")), "nobody will finish it"
        outcomes[fault[0], "ok" if ended.returncode == 0 else "said"] += 1
    print(sum(outcomes.values()), "faults:", dict(outcomes))


def test_what_closing_the_results_tells_is_heard(tmp_path):
    """Where a quota is counted late, closing is the first to tell; the file may be whole all the same."""
    point = tmp_path / "point"
    disk = BrokenDisk(tmp_path / "page", point / "1.h5.part")

    def run():
        shutil.rmtree(point, ignore_errors=True)
        command = [BUILD / "tests" / "write_attempt", point]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, env=os.environ | disk.environment)

    faults = 0
    for fault in faults_at_every_call(disk, run, kinds=("close",)):
        faults += 1
        ended = run()
        assert disk.hits > 0, fault
        assert ended.returncode == 2, fault
        assert len(messages(ended.stderr)) == 1, ended.stderr
        status = point / "1.status.json"
        assert not status.exists() or json.loads(status.read_text())["status"] != "ok", fault
    assert faults == 2, "HDF5 closes a file once when it makes it, and once at its end"


SUBMITTED = """
name = "swept"

[model]
name = "gpt-nano"

[data]
format = "synthetic"

[strategy]
name = "ddp"

[train]
global_batch = 4
steps = 2

[sweep.product]
"train.seed" = [1, 2]
"""

# Takes what a good sbatch takes: a whole script, beside its manifest and the files of its points.
SBATCH = """#!/bin/sh
script=$2
tail -n 1 "$script" | grep -q . && bash -n "$script" || exit 1
cp "$script" "$QUEUED/$(basename "$script")" && echo 4711
"""
SCONTROL = """#!/bin/sh
echo "MaxArraySize = 1001"
"""


def test_submissions(disk, strata, tmp_path):
    (tmp_path / "swept.toml").write_text(SUBMITTED)
    programs, queued = tmp_path / "programs", tmp_path / "queued"
    for folder in (programs, queued):
        folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL), ("squeue", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    search = {"PATH": f"{programs}:{os.environ['PATH']}", "QUEUED": str(queued)}

    def submit(environment=None):
        words = ["submit", "swept.toml", "--site", "slurm", "--no-plan", "--results", disk.folder]
        return strata(None, *words, environment=search | (environment or {}))

    def renew():
        for path in (*queued.iterdir(), *disk.folder.iterdir()):
            path.unlink() if path.is_file() else shutil.rmtree(path)

    assert submit().code == 0
    good = {name: size_of(disk.folder / name) for name in contents(disk.folder)}
    assert len(list(queued.iterdir())) == 1
    renew()
    outcomes = Counter()
    for fault in faults_at_every_call(
        disk, lambda: submit(disk.environment), kinds=("write", "close", "rename", "fsync")
    ):
        renew()
        ended = submit(disk.environment)
        assert disk.hits > 0, fault
        left = {name: size_of(disk.folder / name) for name in contents(disk.folder)}
        for name, size in left.items():
            assert size == good.get(name, size), (fault, name)
        if ended.code == 0:
            assert left == good, fault
            assert len(list(queued.iterdir())) == 1, fault
        elif fault[2] == KILL:
            assert was_killed(ended.code), (fault, ended)
        else:
            assert ended.code == 2, (fault, ended)
            assert len(messages(ended.error)) == 1, (fault, ended.error)
        if list(queued.iterdir()):
            assert {name for name in good if not name.endswith(".jobid")} <= left.keys(), fault
        outcomes[fault[0], ended.code] += 1
    print(sum(outcomes.values()), "faults:", dict(outcomes))


def size_of(file):
    return file.stat().st_size


def test_collect_and_report(disk, tmp_path):
    """In one process that has loaded the package, with a fork for each fault."""
    sample = tmp_path / "sample"
    subprocess.run([BUILD / "tests" / "write_sample_results", sample], check=True, timeout=60)
    shutil.copytree(sample / "sample", disk.folder / "sample")
    written = subprocess.run(
        [sys.executable, ROOT / "tests/support/collect_on_a_broken_disk.py", disk.folder / "sample", tmp_path / "page"],
        capture_output=True, text=True, timeout=240,
        env=os.environ | disk.environment | {"PYTHONPATH": f"{ROOT}/analysis:{ROOT}/tests/support"},
    )  # fmt: skip
    assert written.returncode == 0, (written.stdout + written.stderr)[-2000:]
    print(written.stdout)
