"""Bad input: one clear message, its exit code, no hang, and earlier results stay readable."""

import fcntl
import json
import os
import struct
import subprocess

import h5py
import pytest


def one_message(ended, *parts):
    """Exactly one message of strata's, with all of these in it."""
    assert len(ended.messages()) == 1, ended.error
    for part in parts:
        assert part in ended.messages()[0], ended.messages()[0]


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("steps = 8", "stepz = 8", ["e2e.toml:16", "stepz", "steps"]),
        ("steps = 8", 'steps = "many"', ["e2e.toml:16", "train.steps", "integer"]),
        ("steps = 8", "steps = -1", ["e2e.toml:16", "train.steps", ">= 0"]),
        ('name = "ddp"', 'name = "dpp"', ["strategy", "dpp", "ddp"]),
        ('name = "gpt-nano"', 'name = "gpt-nanoo"', ["gpt-nanoo", "gpt-nano"]),
        ("[train]", "[trian]", ["trian", "train"]),
        ("steps = 8", "steps = = 8", ["e2e.toml:16"]),
        (
            "steps = 8",
            'steps = 8\nclip_norm = 0.5\n[overlap]\nupdate = "backward"',
            ["e2e.toml:19", "overlap.update", "train.clip_norm = 0.5", "accepted"],
        ),
    ],
    ids=[
        "unknown key",
        "wrong type",
        "out of range",
        "unknown strategy",
        "unknown model",
        "unknown table",
        "not TOML",
        "updates before the norm",
    ],
)
@pytest.mark.parametrize("ranks", [None, 2], ids=["plan", "run"])
def test_the_experiment_file(strata, experiment, old, new, parts, ranks):
    file = experiment(replace=[(old, new)])
    ended = strata(ranks, "plan" if ranks is None else "run", file)
    assert ended.code == 2
    one_message(ended, *parts)


def test_a_missing_experiment_file(strata):
    ended = strata(2, "run", "nowhere.toml")
    assert ended.code == 2
    one_message(ended, "nowhere.toml")


def test_instructions_that_no_processor_has(strata, experiment):
    ended = strata(2, "run", experiment(), environment={"STRATA_MAX_CPU_ISA": "avx9"})
    assert ended.code == 2
    one_message(ended, "STRATA_MAX_CPU_ISA", "avx9", "avx512_bf16")


def test_a_missing_data_file(strata, experiment):
    file = experiment(replace=[("king_james", "queen_james")])
    ended = strata(2, "run", file)
    assert ended.code == 2
    one_message(ended, "queen_james_new_testament.txt", "No such file")


def test_a_truncated_token_file(strata, experiment, tmp_path):
    tokens = tmp_path / "tokens.bin"
    header = struct.pack("<3i", 20240520, 1, 10_000) + bytes(1024 - 12)
    tokens.write_bytes(header + bytes(2 * 500))
    file = experiment(replace=[('format = "text"', 'format = "llmc"')])
    ended = strata(2, "run", file, "--set", f'data.paths=["{tokens}"]')
    assert ended.code == 2
    one_message(ended, "tokens.bin", "10000 tokens", "2024 bytes")


def test_micro_batches_that_do_not_divide_the_batch(strata, experiment):
    ended = strata(2, "run", experiment(), "--set", "train.global_batch=13", "--set", "train.micro_batches=2")
    assert ended.code == 3
    one_message(ended, "refused", "13 samples", "2 micro-batches")


def test_a_world_that_no_point_fits(strata, experiment):
    ended = strata(3, "run", experiment(ranks=2))
    assert ended.code == 2
    one_message(ended, "3 ranks", "2")


def test_a_model_that_does_not_fit_the_cap(strata, experiment, tmp_path):
    ended = strata(2, "run", experiment(), "--set", "resources.memory_gib=0.001")
    assert ended.code == 3
    one_message(ended, "oom", "needs")
    status = json.loads(next(tmp_path.glob("results/e2e/*/1.status.json")).read_text())
    assert status["status"] == "oom"
    with h5py.File(next(tmp_path.glob("results/e2e/*/1.h5"))) as file:
        assert "needs" in file["summary/message"][()].decode()


def test_a_results_folder_that_cannot_be_written(strata, experiment, tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    ended = strata(2, "run", experiment(), "--results", tmp_path / "taken")
    assert ended.code == 2
    one_message(ended, "results folder", "taken")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_fills_up(strata, experiment, tmp_path):
    results = tmp_path / "small"
    results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", results], check=True)
    try:
        assert strata(2, "run", experiment(), "--results", results).code == 0
        earlier = next(results.glob("e2e/*/1.h5"))
        ended = strata(2, "run", experiment(), "--results", results, "--set", "train.steps=200000")
        assert ended.code in (1, 2)
        one_message(ended, "results folder", "No space left on device")
        with h5py.File(earlier) as file:
            assert len(file["steps/loss"]) == 8
        part = next(results.glob("e2e/*/*.h5.part"))
        with h5py.File(part, locking=False) as file:
            assert len(file["steps/loss"]) > 0
    finally:
        subprocess.run(["umount", results], check=True)


def test_a_second_job_on_the_same_results(strata, experiment, tmp_path):
    file = experiment()
    assert strata(2, "run", file).code == 0
    folder = next(tmp_path.glob("results/e2e/????????????"))
    with open(folder / "lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = strata(2, "run", file)
        assert ended.code == 2
        one_message(ended, str(folder.relative_to(tmp_path)), "pid")
    with h5py.File(folder / "1.h5") as earlier:
        assert len(earlier["steps/loss"]) == 8
    assert strata(2, "run", file).code == 0
    assert (folder / "2.h5").exists()


@pytest.mark.parametrize("ranks", [None, 2], ids=["plan", "run"])
def test_an_unknown_option_of_the_command_line(strata, experiment, ranks):
    ended = strata(ranks, "plan" if ranks is None else "run", experiment(), "--pont", "1")
    assert ended.code == 2
    one_message(ended, "--pont", "--help")


def test_no_verb(strata):
    ended = strata(None)
    assert ended.code == 2
    one_message(ended, "--help")


def test_a_point_that_does_not_exist(strata, experiment):
    ended = strata(None, "plan", experiment(), "--point", "7")
    assert ended.code == 2
    one_message(ended, "7")
