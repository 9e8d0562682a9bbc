"""Oases' exact search against HiGHS, an independent solver, through the linear programs that we write."""

import json
import os
import subprocess
from pathlib import Path

import highspy
import pytest

BUILD = Path(os.environ["STRATA_BUILD"])


def solved(file):
    """Seconds of the optimum; None where there is none."""
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", 0.0)
    assert solver.readModel(str(file)) == highspy.HighsStatus.kOk
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    assert status == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value


def test_made_up_chains(tmp_path):
    count = 500
    subprocess.run([BUILD / "tests" / "write_chain_programs", tmp_path, str(count)], check=True)
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert len(answers) == count
    found = [solved(tmp_path / f"{k}.mps") for k in range(count)]
    assert sum(answer is None for answer in answers) < count / 4
    for ours, theirs in zip(answers, found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours == pytest.approx(theirs, rel=1e-6)
