"""Made-up sweeps, written once by the real recorder (tests/support/write_sample_results.cpp)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from strata_analysis.load import load

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


@pytest.fixture(scope="session")
def small_version(tmp_path_factory):
    """(file of experiments/ without its ending, texts replaced, further words) -> the results of simulating it."""
    build = Path(os.environ.get("STRATA_BUILD", ROOT / "build" / "cpu"))
    folder = tmp_path_factory.mktemp("small_versions")
    done = {}

    def simulated(name, replacements=(), words=()):
        key = (name, replacements, words)
        if key not in done:
            text = (ROOT / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
            for old, new in replacements:
                assert old in text
                text = text.replace(old, new)
            file = folder / f"{len(done)}.toml"
            file.write_text(text, encoding="utf-8")
            results = file.with_suffix("")
            subprocess.run(
                [build / "strata", "simulate", file, "--results", results, *words],
                check=True,
                capture_output=True,
                timeout=400,
            )
            done[key] = load(results)
        return done[key]

    return simulated
