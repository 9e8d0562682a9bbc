"""Made-up sweeps, written once by the real recorder (tests/support/write_sample_results.cpp)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def written_sample(tmp_path_factory) -> Path:
    build = Path(os.environ.get("STRATA_BUILD", ROOT / "build" / "cpu"))
    folder = tmp_path_factory.mktemp("results")
    subprocess.run([build / "tests" / "write_sample_results", folder], check=True)
    return folder / "sample"


@pytest.fixture
def head_to_head(written_sample, tmp_path) -> Path:
    """A copy of the sweep in blocks."""
    return Path(shutil.copytree(written_sample.parent / "head_to_head", tmp_path / "head_to_head"))


@pytest.fixture
def sample(written_sample, tmp_path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(written_sample, tmp_path / "sample"))
