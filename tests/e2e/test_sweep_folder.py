"""A sweep's folder is what it is wherever it stands and whoever reads it: moved, named with a slash, damaged in a file,
of somebody else; and a job that Slurm has accepted is known though no file says so."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

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
steps = 4

[measure]
warmup_steps = 1
peak = "quick"

[strategy]
name = "single"

[sweep.product]
"train.seed" = [1, 2]
"""


@pytest.fixture(scope="module")
def strata_binary():
    return os.environ.get("STRATA", str(Path(__file__).parents[2] / "build" / "cpu" / "strata"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, strata_binary):
    """A folder with sweep.toml and results/sweep, two points that ended well."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "sweep.toml").write_text(SWEEP)
    ended = subprocess.run(
        [strata_binary, "submit", "sweep.toml", "--site", "local", "--no-plan"],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.fixture
def sweep(finished, tmp_path):
    """A copy of it: results/sweep, below tmp_path."""
    shutil.copy(finished / "sweep.toml", tmp_path)
    shutil.copytree(finished / "results", tmp_path / "results")
    return tmp_path / "results" / "sweep"


@pytest.fixture
def asked(strata_binary, tmp_path):
    def run(*words, cwd=tmp_path, **options):
        return subprocess.run(
            [strata_binary, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120, **options
        )

    run.binary = strata_binary
    return run


def point_folders(sweep):
    return sorted(path.parent for path in sweep.glob("*/1.h5"))


def test_a_folder_has_one_name(sweep, asked):
    shutil.rmtree(point_folders(sweep)[0])
    for folder, cwd in (
        ("results/sweep", None),
        ("results/sweep/", None),
        ("./results/../results/sweep/.", None),
        (".", sweep),
    ):
        ended = asked("resume", folder, "--site", "local", "--dry-run", cwd=cwd or sweep.parents[1])
        assert ended.returncode == 0, ended.stderr
        assert f"points='{sweep}/submissions/2/points'\n" in ended.stdout
    assert not (sweep / "sweep").exists()
    ended = asked("resume", "results/swe\nep")
    assert ended.returncode == 2
    assert "a folder's name with a line break" in ended.stderr


def test_results_that_were_moved_are_where_they_are(sweep, asked, tmp_path):
    moved = tmp_path / "elsewhere" / "sweep"
    shutil.copytree(sweep, moved)
    shutil.rmtree(tmp_path / "results")
    assert asked("status", moved).stdout.startswith("sweep: 2 points: 2 ok")
    assert "nothing to resume" in asked("resume", moved).stdout
    shutil.rmtree(point_folders(moved)[0])
    assert "1 ok, 1 missing" in asked("status", moved).stdout
    assert f"points='{moved}/submissions/2/points'\n" in asked("resume", moved, "--dry-run").stdout
    assert not (tmp_path / "results").exists()

    renamed = moved.rename(moved.with_name("backup"))
    assert "1 ok, 1 missing" in asked("status", renamed).stdout
    ended = asked("resume", renamed)
    assert ended.returncode == 2
    assert f"{renamed} holds the results of experiment sweep, whose runs write to {moved}" in ended.stderr


def num_warmup_steps(attempt):
    """Of an attempt's .jsonl."""
    rows = [json.loads(line) for line in attempt.read_text().splitlines()]
    return sum(row.get("phase") == "warmup" for row in rows)


def test_a_job_runs_what_was_submitted_with_it(asked, tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    submit = ("submit", "sweep.toml", "--site", "local", "--no-plan", "--emit")
    assert asked(*submit).returncode == 0
    # How a point is measured does not make it another one.
    ended = asked(*submit, "--point", 0, "--set", "measure.warmup_steps=3")
    assert ended.returncode == 0, ended.stderr
    sweep = tmp_path / "results" / "sweep"
    script = sweep / "submissions" / "1" / "array-0.sh"
    for task in ("0", "1"):
        ended = subprocess.run(["bash", script, task], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
    assert [num_warmup_steps(attempt) for attempt in sorted(sweep.glob("*/1.jsonl"))] == [1, 1]
    # What is missing is run as it was asked for last.
    for point in point_folders(sweep):
        shutil.rmtree(point)
    ended = asked("resume", "results/sweep")
    assert ended.returncode == 0, ended.stderr
    assert sorted(num_warmup_steps(attempt) for attempt in sweep.glob("*/1.jsonl")) == [1, 3]


@pytest.mark.parametrize("earlier", [False, True], ids=["as now", "as earlier versions queued it"])
def test_points_that_follow_in_one_launch_are_found(asked, tmp_path, earlier):
    duel = (
        SWEEP[: SWEEP.index("[strategy]")]
        + """
[job]
one_launch = true
blocks = 2

[sweep.product]
"strategy.name" = ["single", "ddp"]
"""
    )
    (tmp_path / "duel.toml").write_text(duel)
    assert asked("submit", "duel.toml", "--site", "local", "--no-plan", "--emit").returncode == 0
    submission = tmp_path / "results" / "sweep" / "submissions" / "1"
    script = submission / "array-0.sh"
    if earlier:
        script.write_text(script.read_text().replace("$points/$point.toml", "$points/$point/point.toml"))
        for file in (submission / "points").glob("*.toml"):
            (submission / "points" / file.stem).mkdir()
            file.rename(submission / "points" / file.stem / "point.toml")
    ended = subprocess.run(["bash", script, "0"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "2 points, 4 launches: 4 ok" in asked("status", "results/sweep").stdout


def test_results_of_earlier_versions_are_resumed(sweep, asked):
    points = point_folders(sweep)
    for file in (sweep / "submissions" / "1" / "points").iterdir():
        file.rename(sweep / file.stem / "point.toml")
    for file in points[0].glob("1.*"):
        file.unlink()
    ended = asked("resume", "results/sweep")
    assert ended.returncode == 0, ended.stderr
    assert (points[0] / "1.h5").exists()
    assert "2 ok" in asked("status", "results/sweep").stdout


def test_what_an_attempt_says_of_its_own_end_stands(sweep, asked):
    points = point_folders(sweep)
    endings = sweep / "submissions" / "endings.json"
    killed = [
        {"point": p.name, "attempt": 1, "status": "killed", "message": "no sign of life for 36 s"} for p in points
    ]
    endings.write_text(json.dumps(killed))
    ended = asked("table", "results/sweep")
    assert ended.returncode == 0, ended.stderr
    assert "killed" not in ended.stdout, ended.stdout
    assert "killed" not in endings.read_text()


def test_the_results_of_others_are_read_and_not_written(sweep, asked):
    if os.getuid() != 0:
        pytest.skip("gives a folder to another user, which needs root")
    status = point_folders(sweep)[0] / "1.status.json"
    said = json.loads(status.read_text())
    status.write_text(json.dumps(said | {"status": "running"}))
    os.utime(status, (0, 0))
    submissions = sweep / "submissions"
    for path in (sweep, submissions):
        os.chown(path, 65534, 65534)
    assert "1 killed" in asked("status", "results/sweep").stdout
    for words in (["table", "results/sweep"], ["report", "results/sweep"]):
        ended = asked(*words)
        assert ended.returncode == 0, ended.stderr
    assert not (submissions / "endings.json").exists()


def test_damaged_files_do_not_stop_the_sweep(sweep, asked):
    point = point_folders(sweep)[0].name
    damage = {
        "submissions/1/array-7.json": "",
        "submissions/1/array-8.json": '{"schema": "strata-manifest", "version": 1}',
        "submissions/1/left-out.json": "[1, 2",
        f"{point}/1.status.json": "[]",
        f"{point}/1.h5": "no HDF5",
        "submissions/endings.json": "[[]]",
    }
    for name, text in damage.items():
        (sweep / name).write_text(text)
    ended = asked("status", "results/sweep")
    assert "1 ok" in ended.stdout, ended.stderr
    said = ended.stdout + ended.stderr
    for verb in ("table", "collect", "report"):
        ended = asked(verb, "results/sweep")
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr
        said += ended.stdout + ended.stderr
    for name in damage:
        # Of endings nobody has a question here.
        assert name.removesuffix(".h5") in said or name.endswith("endings.json"), f"{name}: {said}"


def test_attempts_are_read_where_nothing_of_the_submission_can_be(sweep, asked):
    manifest = sweep / "submissions/1/array-0.json"
    manifest.write_text(manifest.read_text()[:100])
    for verb in ("table", "collect", "report"):
        ended = asked(verb, "results/sweep")
        assert ended.returncode == 0, ended.stderr
        assert "submissions/1/array-0.json" in ended.stderr
    assert asked("table", "results/sweep").stdout.count("single") >= 1
    for verb in ("status", "resume"):
        ended = asked(verb, "results/sweep")
        assert ended.returncode == 2
        assert "what was submitted here cannot be read" in ended.stderr
        assert ended.stderr.count("array-0.json") == 1


def test_clocks_that_are_ahead_and_numbers_that_are_none(sweep, asked):
    point = point_folders(sweep)[0]
    status = point / "1.status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"status": "running"}))
    tomorrow = time.time() + 86400
    os.utime(status, (tomorrow, tomorrow))
    assert "1 ok, 1 killed" in asked("status", "results/sweep").stdout
    (point / f"{2**31 - 1}.jsonl").touch()
    ended = asked(
        "run",
        sweep / f"submissions/1/points/{point.name}.toml",
        "--paths-from",
        "sweep.toml",
        "--results",
        "results",
        "--quiet",
    )
    assert ended.returncode == 0, ended.stderr
    assert (point / "2.h5").exists()


def test_messages_tell_a_terminal_nothing(asked, tmp_path):
    (tmp_path / "red.toml").write_text(SWEEP.replace('"mlp-tiny"', '"mlp\\u001b[31m"'))
    ended = asked("expand", "red.toml")
    assert ended.returncode == 2
    assert "mlp\\x1b[31m" in ended.stderr
    assert "\x1b" not in ended.stderr


@pytest.mark.parametrize("verb", [["expand"], ["submit", "--site", "local", "--no-plan"], ["run"]], ids=lambda v: v[0])
def test_texts_that_no_job_could_read_are_refused_at_once(asked, tmp_path, verb):
    broken = SWEEP.encode().replace(b'name = "sweep"\n', b'name = "sweep"\ntitle = "gr\xfc\xdf"\n', 1)
    (tmp_path / "broken.toml").write_bytes(broken)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    verb, *words = verb
    for file, override, message in (
        ("broken.toml", [], "broken.toml:3: title: byte 0xfc"),
        ("sweep.toml", ["--set", b"title=gr\xfc\xdf"], "--set title: byte 0xfc of the value"),
    ):
        ended = subprocess.run(
            [asked.binary, verb, file, *words, *override], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 2, ended.stdout
        assert ended.stderr == f"strata: {message}; accepted: UTF-8\n"
    assert not (tmp_path / "results").exists()


# ---- a job that no file knows

SLURM = {
    "scontrol": 'case $1 in ping) ;; *) echo "MaxArraySize = 1001" ;; esac',
    "sbatch": """
comment=$(sed -n 's/^#SBATCH --comment=//p' "${!#}")
echo "17 $comment" >>"$QUEUE"
[[ -z ${KILL-} ]] || kill -9 $PPID
echo 17
""",
    "squeue": """
[[ -s $QUEUE ]] || exit 0
case "$*" in
  *%k*) cat "$QUEUE" ;;
  *) echo "17_[0-1] PENDING Resources" ;;
esac
""",
    "sinfo": "",
}


def test_an_accepted_job_is_found_again_and_not_submitted_twice(asked, tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in SLURM.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    queue = tmp_path / "queue"
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "QUEUE": str(queue)}
    ended = asked("submit", "sweep.toml", "--site", "slurm", "--no-plan", env=environment | {"KILL": "1"})
    assert ended.returncode == -9
    assert not list(tmp_path.rglob("*.jobid"))
    assert len(queue.read_text().splitlines()) == 1
    for words in (["status", "results/sweep"], ["resume", "results/sweep"]):
        ended = asked(*words, env=environment)
        assert ended.returncode == 0, ended.stderr
        assert "2 pending" in ended.stdout
    assert "nothing to resume" in ended.stdout
    assert len(queue.read_text().splitlines()) == 1
    assert [file.read_text() for file in tmp_path.rglob("*.jobid")] == ["17\n"]
    # Where the queue has forgotten it too, nobody runs it.
    queue.write_text("")
    next(tmp_path.rglob("*.jobid")).unlink()
    assert "2 missing" in asked("status", "results/sweep", env=environment).stdout
