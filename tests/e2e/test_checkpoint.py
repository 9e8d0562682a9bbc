"""A run that goes on from a checkpoint: after its end, kill -9, a signal; by another strategy; what is refused."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import h5py
import pytest

CHECKPOINTS = "\n[checkpoint]\nevery = 3\nkeep = 0\n"


def attempt(folder, number):
    """The facts of an attempt, its losses by step, and how it ended."""
    rows = [json.loads(line) for line in (folder / f"{number}.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if row["kind"] == "step"}
    return rows[0], losses, next((row for row in rows if row["kind"] == "end"), None)


def points(tmp_path):
    return sorted(tmp_path.glob("results/e2e/????????????"))


def steps_of(folder):
    return sorted(int(file.stem.removeprefix("step_")) for file in (folder / "checkpoints").glob("*.h5"))


def test_going_on_is_not_having_stopped(strata, experiment, tmp_path):
    file = experiment(append=CHECKPOINTS)
    assert strata(2, "run", file).code == 0
    (point,) = points(tmp_path)
    assert steps_of(point) == [3, 6, 8], "every 3 steps and the last"
    source = point / "checkpoints" / "step_3.h5"
    ended = strata(2, "run", file, "--set", f"checkpoint.restart_from={source}")
    assert ended.code == 0, ended.error
    assert f"from step 3 of {source}" in ended.output
    assert points(tmp_path) == [point], "how a run is saved and where it begins is not part of its id"
    first, straight, end = attempt(point, 1)
    assert (first["restarted_from"], first["first_step"]) == ("", 0)
    again, losses, again_end = attempt(point, 2)
    assert (again["restarted_from"], again["first_step"]) == (str(source), 3)
    assert losses == {step: straight[step] for step in range(3, 8)}
    assert again_end["parameter_checksum"] == end["parameter_checksum"]
    with h5py.File(point / "2.h5") as results:
        assert results.attrs["first_step"] == 3
        assert results["steps/phase"][:].tolist() == [0, 0, 1, 1, 1], "warm-up counts from where it began"


def test_epochs_go_on_too(strata, experiment, tmp_path):
    """20 samples, 12 a step: the third epoch ends with sample 59, in step 4."""
    file = experiment(append=CHECKPOINTS)
    epochs = {"steps": 0, "epochs": 3, "schedule": "step", "decay_epochs": "[1, 2]", "decay_factor": 0.5}
    words = [word for key, value in epochs.items() for word in ("--set", f"train.{key}={value}")]
    synthetic = ("train.learning_rate=0.01", "data.format=synthetic", "data.paths=[]", "data.num_samples=20")
    words += [word for override in synthetic for word in ("--set", override)]
    ended = strata(2, "run", file, *words)
    assert ended.code == 0, ended.error
    (point,) = points(tmp_path)
    source = point / "checkpoints" / "step_3.h5"
    assert strata(2, "run", file, *words, "--set", f"checkpoint.restart_from={source}").code == 0

    def rates(number):
        rows = [json.loads(line) for line in (point / f"{number}.jsonl").read_text().splitlines()]
        return {row["step"]: row["learning_rate"] for row in rows if row["kind"] == "step"}

    # Steps begin with samples 0, 12, 24, 36, 48: of epochs 0, 0, 1, 1, 2.
    assert rates(1) == {0: 0.01, 1: 0.01, 2: 0.005, 3: 0.005, 4: 0.0025}
    assert rates(2) == {3: 0.005, 4: 0.0025}
    assert attempt(point, 2)[1] == {step: attempt(point, 1)[1][step] for step in (3, 4)}
    source = point / "checkpoints" / "step_5.h5"
    ended = strata(2, "run", file, *words, "--set", f"checkpoint.restart_from={source}")
    assert ended.code == 2
    assert "train.epochs: 3, which are 5 steps, but" in ended.error


def test_another_strategy_and_number_of_ranks(strata, experiment, tmp_path):
    file = experiment(append=CHECKPOINTS)
    assert strata(2, "run", file).code == 0
    (point,) = points(tmp_path)
    _, straight, _ = attempt(point, 1)
    # A folder means its newest; relative to the experiment file.
    (point / "checkpoints" / "step_8.h5").unlink()
    source = (point / "checkpoints").relative_to(file.parent)
    for ranks, strategy in ((3, "zero3"), (1, "single"), (2, "1f1b")):
        words = ["--set", f"strategy.name={strategy}", "--set", f"resources.ranks_per_node={ranks}"]
        ended = strata(ranks, "run", file, *words, "--set", f"checkpoint.restart_from={source}")
        assert ended.code == 0, ended.error
        (other,) = set(points(tmp_path)) - {point}
        facts, losses, _ = attempt(other, 1)
        assert (facts["strategy_name"], facts["first_step"]) == (strategy, 6)
        assert losses == pytest.approx({step: straight[step] for step in (6, 7)}, rel=1e-4)
        for path in sorted(other.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        other.rmdir()


def start(strata, file, tmp_path, *words):
    return subprocess.Popen(
        [os.environ.get("MPIEXEC", "mpiexec"), "-n", "2", strata.binary, "run", str(file), "--quiet", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def children(pid):
    """The processes below one, that is the ranks of a launcher and its proxies."""
    found, parents = [], {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text()
        except OSError:
            continue
        parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(process.name))
    todo = [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def wait_for_checkpoints(tmp_path, count):
    deadline = time.monotonic() + 60
    while sum(len(steps_of(point)) for point in points(tmp_path)) < count:
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.02)


def test_killed_and_from_the_latest(strata, experiment, tmp_path):
    every_step = CHECKPOINTS.replace("every = 3", "every = 1")
    endless = experiment(replace=[("steps = 8", "steps = 100000")], append=every_step)
    restart = ["--set", "checkpoint.restart_from=latest"]
    job = start(strata, endless, tmp_path, *restart)  # nothing to go on from yet
    try:
        wait_for_checkpoints(tmp_path, 10)
    finally:
        for pid in [*children(job.pid), job.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.wait(timeout=20)
        job.stderr.close()
    (point,) = points(tmp_path)
    assert attempt(point, 1)[0]["first_step"] == 0
    newest = steps_of(point)[-1]
    for step in steps_of(point):
        with h5py.File(point / "checkpoints" / f"step_{step}.h5") as checkpoint:
            assert checkpoint.attrs["step"] == step
    # Half-written files are not looked at.
    (point / "checkpoints" / f"step_{newest + 1}.h5.part").write_bytes(b"half")

    # Told to stop long before a checkpoint is due, it leaves one.
    job = start(strata, endless, tmp_path, *restart, "--set", "checkpoint.every=1000000")
    try:
        deadline = time.monotonic() + 60
        while not ((point / "2.jsonl").exists() and (point / "2.jsonl").read_text().count('"measured"') > 2):
            assert time.monotonic() < deadline and job.poll() is None, "the second run did not go on"
            time.sleep(0.02)
        for pid in children(job.pid):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "strata":
                os.kill(pid, signal.SIGTERM)
        job.wait(timeout=30)
    finally:
        job.kill()
        job.stderr.close()
    facts, losses, _ = attempt(point, 2)
    assert facts["first_step"] == newest
    assert facts["restarted_from"].endswith(f"step_{newest}.h5")
    assert min(losses) == newest
    assert json.loads((point / "2.status.json").read_text())["status"] == "preempted"
    assert steps_of(point)[-1] == max(losses) + 1 > newest
    assert not list((point / "checkpoints").glob("*.part"))


def test_only_the_newest_are_kept(strata, experiment, tmp_path):
    assert strata(2, "run", experiment(append=CHECKPOINTS.replace("keep = 0", "keep = 2"))).code == 0
    (point,) = points(tmp_path)
    assert steps_of(point) == [6, 8]
    assert {path.name for path in (point / "checkpoints").iterdir()} == {"step_6.h5", "step_8.h5"}


@pytest.fixture
def trained(strata, experiment, tmp_path):
    """The experiment file, and the folder of its checkpoints."""
    file = experiment(append=CHECKPOINTS)
    assert strata(2, "run", file).code == 0
    return file, points(tmp_path)[0] / "checkpoints"


def test_what_cannot_be_gone_on_from(strata, trained, tmp_path):
    file, folder = trained
    (tmp_path / "empty").mkdir()
    whole = (folder / "step_3.h5").read_bytes()
    (tmp_path / "short.h5").write_bytes(whole[:-1000])
    cases = [
        ("nowhere.h5", [], ["nowhere.h5", "No such file"]),
        ("empty", [], ["checkpoint.restart_from", "step_<number>.h5", "empty"]),
        ("e2e.toml", [], ["e2e.toml", "not a complete checkpoint"]),
        ("short.h5", [], ["short.h5", "not a complete checkpoint", "truncated"]),
        (folder.parent / "1.h5", [], ["1.h5", "strata-results", "strata-checkpoint"]),
        (folder / "step_3.h5", ["train.seed=2"], ["train.seed: 2", "step_3.h5 was trained with 1"]),
        (folder / "step_3.h5", ["train.optimizer=sgd"], ['train.optimizer: "sgd"', 'was trained with "adamw"']),
        (folder / "step_3.h5", ["model.name=gpt-micro"], ["gpt-micro", "gpt-nano"]),
        (folder / "step_3.h5", ["train.global_batch=24"], ["train.global_batch: 24", "was trained with 12"]),
        (folder / "step_8.h5", [], ["e2e.toml:16", "train.steps: 8", "has trained 8 steps"]),
    ]
    for source, overrides, parts in cases:
        words = [word for override in overrides for word in ("--set", override)]
        ended = strata(2, "run", file, *words, "--set", f"checkpoint.restart_from={source}")
        assert ended.code == 2, (source, ended.error)
        assert len(ended.messages()) == 1, ended.error
        for part in parts:
            assert part in ended.messages()[0], (part, ended.messages()[0])
    assert not (folder.parent / "2.jsonl").exists(), "nothing is recorded of a run that could not begin"


def test_checkpoints_that_cannot_be_written_end_the_run(strata, experiment, tmp_path):
    file = experiment(append=CHECKPOINTS)
    assert strata(2, "run", file, "--set", "checkpoint.every=0").code == 0
    (point,) = points(tmp_path)
    assert not (point / "checkpoints").exists()
    (point / "checkpoints").write_text("no folder")
    ended = strata(2, "run", file)
    assert ended.code == 2
    assert "recording_error" in ended.error and "checkpoints" in ended.error
    assert json.loads((point / "2.status.json").read_text())["status"] == "recording_error"
    assert sorted(attempt(point, 2)[1]) == [0, 1, 2], "the steps until then are there"
