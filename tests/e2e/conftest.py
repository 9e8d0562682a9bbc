"""How the tests start strata: as a user does, with a time limit that no hang survives."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = ROOT / "experiments" / "data" / "king_james_new_testament.txt"

EXPERIMENT = """
name = "e2e"

[model]
name = "gpt-nano"

[data]
format = "text"
paths = ["{text}"]

[resources]
ranks_per_node = {ranks}

[train]
global_batch = 12
steps = 8

[strategy]
name = "ddp"

[measure]
peak = "quick"
warmup_steps = 2
"""


@dataclass
class Ended:
    code: int
    output: str  # standard output
    error: str  # standard error

    def messages(self):
        """What strata said on standard error, without the launcher's own words."""
        return [line for line in self.error.splitlines() if line.startswith("strata:")]


@pytest.fixture
def strata(tmp_path):
    """strata(ranks, *words) under mpiexec; ranks None: the binary alone. Runs in an empty folder."""
    binary = os.environ.get("STRATA", str(ROOT / "build" / "cpu" / "strata"))

    def run(ranks, *words, timeout=300, environment=None):
        launcher = [] if ranks is None else [os.environ.get("MPIEXEC", "mpiexec"), "-n", str(ranks)]
        ended = subprocess.run(
            [*launcher, binary, *map(str, words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}),
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    run.binary = binary
    return run


@pytest.fixture
def experiment(tmp_path):
    """experiment(ranks=2, old=new, ...) writes e2e.toml with texts replaced, and returns its path."""

    def write(ranks=2, replace=(), append=""):
        text = EXPERIMENT.format(text=TEXT, ranks=ranks)
        for old, new in replace:
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "e2e.toml"
        file.write_text(text + append)
        return file

    return write
