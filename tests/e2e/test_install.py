"""What `cmake --install` puts into a prefix works from there, whatever becomes of the source; its modules load."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

BUILD = Path(os.environ.get("STRATA", ROOT / "build" / "cpu" / "strata")).parent
LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")


def run(*words, **options):
    """Standard output; the command must succeed."""
    ended = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120, **options)
    assert ended.returncode == 0, f"{words}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed") / "a prefix"
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


def test_what_ships_is_found_beside_the_binary(prefix, tmp_path):
    strata = prefix / "bin" / "strata"
    clusters = run(strata, "list", "clusters", cwd=tmp_path)
    shipped = sorted(file.stem for file in (ROOT / "experiments" / "clusters").glob("*.toml"))
    assert [line.split()[0] for line in clusters.splitlines()] == ["this", *shipped]
    sites = run(strata, "list", "sites", cwd=tmp_path)
    assert [line.split()[0] for line in sites.splitlines()] == ["local", "slurm", "testbed"]
    # The installed ones, not those of the source.
    (prefix / "share/strata/jobscripts/sites/mine.toml").write_text('scheduler = "none"\n')
    try:
        assert "mine" in run(strata, "list", "sites", cwd=tmp_path)
    finally:
        (prefix / "share/strata/jobscripts/sites/mine.toml").unlink()


def test_a_sweep_from_the_prefix(prefix, tmp_path):
    strata = prefix / "bin" / "strata"
    experiment = prefix / "share" / "strata" / "experiments" / "first.toml"
    dry = run(strata, "submit", experiment, "--dry-run", cwd=tmp_path)
    assert f"strata='{strata}'" in dry
    assert "#SBATCH --array=0" in dry
    assert not list(tmp_path.iterdir())
    quick = ("--set", "train.steps=4", "--set", "measure.peak=quick")
    run(strata, "submit", experiment, "--site", "local", *quick, cwd=tmp_path)
    assert "1 ok" in run(strata, "status", "results/first", cwd=tmp_path)


def test_the_analysis_package_of_the_prefix(prefix, tmp_path):
    strata = prefix / "bin" / "strata"
    experiment = prefix / "share" / "strata" / "experiments" / "first.toml"
    run(strata, "simulate", experiment, "--set", "cluster=a100-2x8", cwd=tmp_path)
    # An interpreter that has what the package needs, and knows no other strata_analysis.
    environment = os.environ | {"PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    package = prefix / "share" / "strata" / "analysis" / "strata_analysis"
    (package / "__main__.py").rename(package / "kept.py")
    (package / "__main__.py").write_text("import strata_analysis; print(strata_analysis.__file__)\n")
    try:
        assert run(strata, "table", "results/first", cwd=tmp_path, env=environment).startswith(str(package))
    finally:
        (package / "kept.py").rename(package / "__main__.py")
    assert "gpt-nano" in run(strata, "table", "results/first", cwd=tmp_path, env=environment)


def test_completion_is_installed(prefix):
    for shell, file in (("bash", "bash-completion/completions/strata"), ("zsh", "zsh/site-functions/_strata")):
        assert (prefix / "share" / file).read_text() == run(prefix / "bin" / "strata", "completion", shell)


@pytest.fixture
def modulepath(prefix, tmp_path):
    folder = tmp_path / "modules" / "strata"
    folder.mkdir(parents=True)
    return folder


def loaded(environment):
    """What a shell has after the module is loaded: the binary that it finds, STRATA_ROOT."""
    return run("bash", "-c", f'{environment}\ncommand -v strata; printf "%s\\n" "$STRATA_ROOT"').splitlines()


def test_the_module_for_lmod(prefix, modulepath):
    if not LMOD.exists():
        pytest.skip("no Lmod here")
    shutil.copy(prefix / "share/strata/modulefiles/strata.lua", modulepath / "current.lua")
    environment = os.environ | {"MODULEPATH": str(modulepath.parent)}
    ended = subprocess.run(
        [LMOD, "bash", "load", "strata"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "rror" not in ended.stderr, ended.stderr
    assert loaded(ended.stdout) == [str(prefix / "bin" / "strata"), str(prefix)]
    told = subprocess.run([LMOD, "bash", "help", "strata"], env=environment, capture_output=True, text=True, timeout=60)
    assert "strata list strategies" in told.stderr


TCL = """
proc module-whatis text {}
proc conflict name {}
proc prepend-path {name value} { puts "export $name='$value':\\"\\$$name\\"" }
proc setenv {name value} { puts "export $name='$value'" }
source [lindex $argv 0]
"""


def test_the_module_in_tcl(prefix, tmp_path):
    if shutil.which("tclsh") is None:
        pytest.skip("no tclsh here")
    (tmp_path / "module.tcl").write_text(TCL)
    commands = run("tclsh", tmp_path / "module.tcl", prefix / "share/strata/modulefiles/strata.tcl")
    assert loaded(commands) == [str(prefix / "bin" / "strata"), str(prefix)]
