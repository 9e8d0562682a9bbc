"""A real Slurm cluster on this machine: jobscripts/testbed.py, up for one file of tests, down whatever happens."""

import ctypes
import os
import runpy
import subprocess
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "jobscripts" / "testbed.py"
SITE = tomllib.loads((ROOT / "jobscripts" / "sites" / "testbed.toml").read_text())
CANNOT_BE_DONE_HERE = 3  # exit code of testbed.py
testbed_script = runpy.run_path(str(SCRIPT))
PRIVATE, RECORD = testbed_script["private_folder"](), testbed_script["record_file"]()


def pytest_configure() -> None:
    """Go into a network namespace of our own, where the nodes' devices come and go.

    MPI elsewhere on the machine, of tests that run beside these, would count devices that are gone when it looks again.
    Who may not make a namespace cannot have nodes with a network either.
    """
    new_network = 0x40000000  # CLONE_NEWNET of <sched.h>
    if ctypes.CDLL(None, use_errno=True).unshare(new_network) == 0:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # Without any address but the loopback's getaddrinfo finds nothing that is fit for use, 127.0.0.1 neither.
        subprocess.run(["ip", "link", "add", "machine", "type", "bridge"], check=True)
        subprocess.run(["ip", "address", "add", "10.79.0.1/24", "dev", "machine"], check=True)
        subprocess.run(["ip", "link", "set", "machine", "up"], check=True)


def script(*words, timeout=180, **options):
    """testbed.py WORDS, ended."""
    return subprocess.run(
        [SCRIPT, *map(str, words)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **options
    )


def up(*options):
    """testbed.py up. Where the machine cannot do it the test is skipped with testbed.py's words."""
    ended = script("up", "--until-end-of", os.getpid(), *options)
    if ended.returncode == CANNOT_BE_DONE_HERE:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr
    return ended


@dataclass
class Testbed:
    folder: Path
    nodes: int
    rate_mbit: int
    up_seconds: float
    environment: dict = field(default_factory=lambda: dict(SITE["environment"]) | {"OMP_NUM_THREADS": "1"})

    def run(self, *words, node=None, timeout=180, environment=None, cwd=None):
        """A command that finds this Slurm; node: in the network of that one."""
        where = [] if node is None else ["--node", node]
        return script(
            "exec", *where, *words, timeout=timeout, cwd=cwd, env=os.environ | self.environment | (environment or {})
        )

    def check(self, *words, **options):
        """The same, must succeed. Standard output."""
        ended = self.run(*words, **options)
        assert ended.returncode == 0, f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def srun(self, nodes, ranks, *words, launcher=SITE["launcher"], **options):
        """Started as a job script of this site would."""
        return self.run(*launcher.split(), f"--nodes={nodes}", f"--ntasks={ranks}", *words, **options)

    def job(self, number):
        """scontrol's words on a job: name -> value."""
        text = self.check("scontrol", "--oneliner", "show", "job", number)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def node_states(self):
        """By name."""
        lines = self.check("sinfo", "--noheader", "--Node", f"--partition={SITE['partition']}", "--format=%N %T")
        return dict(line.split() for line in lines.splitlines())


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {seconds} s not yet: {what}"
        time.sleep(0.2)
    return value


@pytest.fixture(scope="module")
def testbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("testbed") / "slurm"
    begin = time.monotonic()
    up("--nodes", 4, "--rate", "400mbit", "--folder", folder)
    try:
        yield Testbed(folder, 4, 400, time.monotonic() - begin)
    finally:
        ended = script("down")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def strata():
    return os.environ.get("STRATA", str(ROOT / "build" / "cpu" / "strata"))


@pytest.fixture
def build():
    return Path(os.environ.get("STRATA_BUILD", ROOT / "build" / "cpu"))
