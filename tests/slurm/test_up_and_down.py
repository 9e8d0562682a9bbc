"""Up and down in every way: nothing stays."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import CANNOT_BE_DONE_HERE, PRIVATE, RECORD, SCRIPT, script, up, wait_until


def left_behind(folder):
    """Processes, namespaces, devices and files of a testbed in @p folder."""
    found = [path for path in (folder, PRIVATE) if path.exists()]
    found += [path for path in Path("/run/netns").glob("strata-n*")]
    devices = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    found += [line for line in devices.splitlines() if line.startswith("strata-n")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and int(process.name) != os.getpid():
            found.append((process.name, (process / "comm").read_text()))
    return found


@pytest.fixture
def folder(tmp_path):
    """Where a test may put a testbed; whatever it leaves there is taken down and is a failure."""
    folder = tmp_path / "slurm"
    yield folder
    left = left_behind(folder)
    if RECORD.exists():
        script("down")
    assert not left


def test_up_and_down_with_a_job_running(folder):
    up("--nodes", 2, "--folder", folder)
    ended = script("exec", "sbatch", "-N2", "--output=/dev/null", "--wrap", "srun --mpi=none sleep 100")
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: "sleep" in running_commands(), 20, "the job's step runs")
    begin = time.monotonic()
    ended = script("down")
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - begin < 15
    assert not left_behind(folder)
    assert "none is up" in script("down").stdout


def running_commands():
    """The program names of a testbed's namespaces."""
    pids = subprocess.run(["ip", "netns", "pids", "strata-n1"], capture_output=True, text=True).stdout.split()
    return [Path("/proc", pid, "comm").read_text().strip() for pid in pids if Path("/proc", pid).exists()]


def test_without_a_network(folder):
    up("--nodes", 3, "--no-network", "--folder", folder)
    ended = script("exec", "srun", "--mpi=none", "-N3", "-n3", "sh", "-c", "echo $SLURMD_NODENAME")
    assert sorted(ended.stdout.split()) == ["n1", "n2", "n3"], ended.stderr
    assert "none: all nodes are this host" in script("status").stdout
    assert script("down").returncode == 0


def test_who_waits_for_the_end_of_another_process_can_be_ended_alone(folder):
    """`down` ends it first of all: it must not take down what `down` is taking down."""
    up("--nodes", 1, "--no-network", "--folder", folder)
    watcher = Path("/proc", (folder / "watcher.pid").read_text())
    os.kill(int(watcher.name), signal.SIGTERM)
    wait_until(lambda: not watcher.exists(), 20, "the process of --until-end-of ends")
    assert script("exec", "sinfo", "--noheader", "--format=%t").stdout.strip() == "idle"
    assert script("down").returncode == 0


def test_settings_reach_slurm(folder):
    up("--nodes", 1, "--no-network", "--folder", folder, "--set", "MaxArraySize=7", "--cpus", 3)
    text = script("exec", "scontrol", "show", "config").stdout
    assert ["MaxArraySize", "7"] in [line.replace("=", " ").split() for line in text.splitlines()]
    assert script("exec", "sinfo", "--noheader", "--format=%c").stdout.split() == ["3"]
    assert script("down").returncode == 0


def test_a_start_that_fails_leaves_nothing_and_says_why(folder):
    ended = script("up", "--nodes", 1, "--folder", folder, "--set", "SelectType=select/carrier_pigeon")
    if ended.returncode == CANNOT_BE_DONE_HERE:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 1
    assert "carrier_pigeon" in ended.stderr
    assert not left_behind(folder)


def test_a_start_that_is_ended_leaves_nothing(folder):
    up("--nodes", 1, "--folder", folder)  # skips where it cannot be done
    assert script("down").returncode == 0
    # Nobody has that address: the start waits for a slurmctld that answers.
    starting = subprocess.Popen(
        [SCRIPT, "up", "--nodes", "1", "--folder", folder, "--set", "SlurmctldAddr=10.78.0.200"],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: (folder / "slurm.conf").exists(), 20, "the start has begun")
    starting.terminate()
    _, error = starting.communicate(timeout=90)
    assert starting.returncode == 143, error
    assert not left_behind(folder)


def test_it_ends_with_whom_it_was_started_for(folder):
    someone = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    try:
        up("--nodes", 1, "--folder", folder, "--until-end-of", someone.pid)
        assert script("exec", "sinfo").returncode == 0
    finally:
        someone.kill()
    wait_until(lambda: not left_behind(folder), 30, "it is down")


@pytest.mark.parametrize("record_is_left", [True, False])
def test_what_a_killed_one_left_is_no_obstacle(folder, record_is_left):
    up("--nodes", 2, "--folder", folder)
    wait_until(lambda: (folder / "watcher.pid").exists(), 10, "somebody waits for our end")
    for file in [folder / "watcher.pid", *folder.glob("*.pid")]:
        os.kill(int(file.read_text()), signal.SIGKILL)
    if not record_is_left:
        RECORD.unlink()
        shutil.rmtree(folder)
    said = up("--nodes", 1, "--folder", folder).stdout
    assert ("what it left is removed" in said) == record_is_left
    assert "1 nodes up" in said
    assert sorted(path.name for path in Path("/run/netns").glob("strata-n*")) == ["strata-n1"]
    assert script("down").returncode == 0


def test_what_cannot_be_is_said(folder, tmp_path):
    for words, said in [
        (["status"], "no testbed is up"),
        (["exec", "true"], "no testbed is up"),
        (["up", "--folder", tmp_path], "exists; --folder names one that does not"),
        (["up", "--nodes", "0"], "0 is less than 1"),
        (["up", "--set", "MaxArraySize"], "is not KEY=VALUE"),
    ]:
        ended = script(*words)
        assert ended.returncode == 2, words
        assert said in ended.stderr


def test_without_root():
    # As nobody where we are root; that needs copies that nobody may read.
    user, group = (65534, 65534) if os.getuid() == 0 else (os.getuid(), os.getgid())
    with tempfile.TemporaryDirectory() as copies:
        Path(copies).chmod(0o755)
        for file in (SCRIPT, SCRIPT.with_name("shaped_nodes.sh")):
            shutil.copy(file, copies)

        def run(*words):
            command = [f"{copies}/{SCRIPT.name}", *words]
            return subprocess.run(command, user=user, group=group, cwd="/", capture_output=True, text=True, timeout=180)

        ended = run("up")
        assert (ended.returncode, "need root" in ended.stderr) == (CANNOT_BE_DONE_HERE, True)
        ended = run("up", "--nodes", "2", "--no-network")
        if ended.returncode == CANNOT_BE_DONE_HERE:
            pytest.skip(ended.stderr.strip())
        try:
            assert ended.returncode == 0, ended.stderr
            if user != os.getuid():
                second = script("up")
                assert second.returncode == 2
                assert "is another user's testbed up?" in second.stderr
            ended = run("exec", "srun", "--mpi=none", "-N2", "-n2", "sh", "-c", "echo $SLURMD_NODENAME")
            assert sorted(ended.stdout.split()) == ["n1", "n2"], ended.stderr
        finally:
            ended = run("down")
        assert ended.returncode == 0, ended.stderr
    assert not left_behind(Path(tempfile.gettempdir(), f"strata-testbed-{user}"))
