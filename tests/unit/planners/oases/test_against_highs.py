"""Oases' exact search against HiGHS, an independent solver, through the linear programs that we write."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "support"))
from solved_by_highs import solved

BUILD = Path(os.environ["STRATA_BUILD"])


def test_made_up_chains(tmp_path):
    count = 2000 if "STRATA_DEEP" in os.environ else 150
    subprocess.run([BUILD / "tests" / "write_chain_programs", tmp_path, str(count)], check=True)
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert len(answers) == count
    found = [solved(tmp_path / f"{k}.mps") for k in range(count)]
    assert sum(answer is None for answer in answers) < count / 4
    for ours, theirs in zip(answers, found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours == pytest.approx(theirs, rel=1e-6)
