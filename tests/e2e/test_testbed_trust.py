"""What another user of the machine has put where a testbed might be looked for is not believed: nobody's files and
processes are read, removed or ended but the user's own."""

import argparse
import json
import os
import runpy
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "jobscripts" / "testbed.py"
VICTIM, ATTACKER = 1, 65534  # daemon and nobody
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="plants files as other users, which needs root")


def is_reachable_by_others(folder):
    return all(above.stat().st_mode & 0o001 for above in (folder, *folder.parents))


@pytest.fixture
def shared():
    """A folder like /tmp, which everybody may reach and write to, with copies of the script. It is none of pytest's:
    whenever another pytest of this user begins, that closes the folder above them all to other users."""
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]
    place = next(place for place in places if place.is_dir() and is_reachable_by_others(place))
    folder = Path(tempfile.mkdtemp(prefix="strata-trust-", dir=place)).resolve()
    folder.chmod(0o1777)
    for file in (SCRIPT, SCRIPT.with_name("shaped_nodes.sh")):
        shutil.copy(file, folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def precious(shared):
    """A folder and a process of the user who is attacked."""
    folder = shared / "precious"
    folder.mkdir(mode=0o700)
    (folder / "thesis.tex").write_text("years of work")
    for path in (folder, folder / "thesis.tex"):
        os.chown(path, VICTIM, VICTIM)
    process = subprocess.Popen([shutil.which("sleep"), "100"], user=VICTIM, group=VICTIM, cwd="/")
    yield folder, process
    process.kill()
    process.wait()


def run(shared, *words):
    return subprocess.run(
        [shared / SCRIPT.name, *words],
        user=VICTIM,
        group=VICTIM,
        cwd="/",
        env={"PATH": os.environ["PATH"], "TMPDIR": str(shared)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def plant(path, text, mode=0o644):
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, ATTACKER, ATTACKER)


def plant_folder(path, mode=0o777):
    path.mkdir()
    path.chmod(mode)
    os.chown(path, ATTACKER, ATTACKER)
    return path


def record(folder, process):
    plant(folder / "slurmctld.pid", str(process.pid)) if os.access(folder, os.W_OK) else None
    found = folder.stat()
    return json.dumps(
        {
            "folder": str(folder),
            "network": False,
            "nodes": 1,
            "since": "today",
            "since_ticks": 0,
            "inode": [found.st_dev, found.st_ino],
            "rate": None,
        }
    )


def is_unharmed(precious):
    folder, process = precious
    return (folder / "thesis.tex").read_text() == "years of work" and process.poll() is None


def test_a_record_in_a_shared_folder_is_not_read(shared, precious):
    plant(shared / f"strata-testbed-{VICTIM}.json", record(*precious))
    for words, code in ((["status"], 2), (["down"], 0)):
        ended = run(shared, *words)
        assert (ended.returncode, "none is up" in ended.stdout + ended.stderr) == (code, code == 0), ended
        assert is_unharmed(precious)
    assert "no testbed is up" in run(shared, "exec", "true").stderr


@pytest.mark.parametrize("way", ["folder", "symbolic link", "own folder that others may write"])
def test_a_folder_of_somebody_else_is_refused(shared, precious, way):
    private = shared / f"strata-testbed-{VICTIM}"
    planted = plant_folder(shared / "elsewhere" if way == "symbolic link" else private)
    plant(planted / "testbed.json", record(*precious))
    if way == "symbolic link":
        private.symlink_to(planted)
    if way == "own folder that others may write":
        os.chown(private, VICTIM, VICTIM)
    for words in (["status"], ["down"], ["exec", "true"], ["up", "--no-network"]):
        ended = run(shared, *words)
        assert ended.returncode in (2, 3), ended
        if ended.returncode == 2:
            assert f"{private} is not a folder of user {VICTIM} alone (mode 700)" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
        assert is_unharmed(precious)


def test_a_folder_that_was_exchanged_is_refused(shared, precious):
    private = shared / f"strata-testbed-{VICTIM}"
    private.mkdir(mode=0o700)
    slurm = shared / "slurm"
    slurm.mkdir()
    os.chown(slurm, VICTIM, VICTIM)
    slurm.chmod(0o700)
    (private / "testbed.json").write_text(record(slurm, precious[1]))
    for path in (private, private / "testbed.json"):
        os.chown(path, VICTIM, VICTIM)
    slurm.rename(shared / "away")
    plant_folder(slurm)
    ended = run(shared, "down")
    assert (ended.returncode, is_unharmed(precious)) == (2, True)
    assert f"{slurm} is not a folder of user {VICTIM} alone" in ended.stderr
    slurm.rmdir()
    slurm.symlink_to(precious[0])
    assert run(shared, "down").returncode == 2
    assert is_unharmed(precious)


def own_record(shared, folder, process):
    """Of the user who is attacked, of a testbed in @p folder."""
    private = shared / f"strata-testbed-{VICTIM}"
    private.mkdir(mode=0o700)
    (private / "testbed.json").write_text(record(folder, process))
    for path in (private, private / "testbed.json"):
        os.chown(path, VICTIM, VICTIM)
    return private / "testbed.json"


@pytest.mark.parametrize("owner", [0, ATTACKER])
def test_a_folder_that_somebody_else_could_exchange_is_refused(shared, precious, owner):
    """Between the look at it and its use."""
    above = shared / "open"
    above.mkdir()
    above.chmod(0o777 if owner == 0 else 0o755)
    slurm = above / "slurm"
    slurm.mkdir(mode=0o700)
    os.chown(slurm, VICTIM, VICTIM)
    os.chown(above, owner, owner)
    own_record(shared, slurm, precious[1])
    for words in (["status"], ["down"], ["exec", "true"]):
        ended = run(shared, *words)
        assert ended.returncode == 2, ended
        assert f"others than user {VICTIM} may write {above}" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
    assert slurm.exists() and is_unharmed(precious)


@pytest.mark.parametrize("text", ["", "{", "[1"])
def test_a_damaged_record_is_named(shared, precious, text):
    file = own_record(shared, shared, precious[1])
    file.write_text(text)
    for words in (["status"], ["down"], ["exec", "true"]):
        ended = run(shared, *words)
        assert ended.returncode == 2, ended
        assert f"{file} is damaged" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


@pytest.fixture
def script(tmp_path):
    """The script's names, with a private folder of this test's own."""
    names = runpy.run_path(str(SCRIPT))
    names["up"].__globals__.update(
        private_folder=lambda: tmp_path / "private", check_this_machine=lambda _: None, FIRST_PORT=0
    )
    return names


@pytest.mark.parametrize("has_folder", [True, False])
def test_of_two_that_start_at_once_the_first_keeps_its_record(script, tmp_path, has_folder):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private" / "testbed.json").write_text("of the first")
    if has_folder:
        (tmp_path / "slurm").mkdir(mode=0o700)
    script["up"].__globals__.update(read_record=lambda: None)  # the second looked before the first was there
    second = argparse.Namespace(
        folder=tmp_path / "slurm", no_network=True, nodes=1, cpus=1, memory_mib=1, rate=None, set=[], until_end_of=None
    )
    with pytest.raises(script["RefusedError"], match="exists" if has_folder else "another testbed"):
        script["up"](second)
    assert (tmp_path / "private" / "testbed.json").read_text() == "of the first"
    assert [path.name for path in (tmp_path / "private").iterdir()] == ["testbed.json"]
    assert (tmp_path / "slurm").exists() == has_folder


def test_the_key_is_never_readable_by_others(script, tmp_path, monkeypatch):
    """Not for the moment between its making and a change of its mode, either."""
    modes = []

    def random_bytes(count):
        modes.append(stat.S_IMODE((tmp_path / "munge.key").stat().st_mode))
        return bytes(count)

    monkeypatch.setattr(os, "urandom", random_bytes)
    before = os.umask(0)
    try:
        script["write_key"](tmp_path / "munge.key")
    finally:
        os.umask(before)
    assert modes == [0o400]
    with pytest.raises(FileExistsError):  # a file that was there would keep its owner and its mode
        script["write_key"](tmp_path / "munge.key")


def test_a_number_that_was_given_to_another_process_ends_nobody(tmp_path):
    """By the time that a testbed goes down its daemon may have ended, and its number be somebody else's."""
    script = runpy.run_path(str(SCRIPT))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as mine:
        (tmp_path / "slurmd-n1.pid").write_text(str(mine.pid))
        settings = {"folder": str(tmp_path), "network": False, "nodes": 1, "since_ticks": 0}
        assert mine.pid not in script["processes_of"](settings), "it is no daemon"
        assert not script["may_be_of"](settings | {"since_ticks": script["start_ticks"](mine.pid) + 1}, mine.pid)
        (tmp_path / "slurmd-n1.pid").write_text("1")
        assert 1 not in script["processes_of"](settings)
        mine.communicate(b"\n")
