"""The command line teaches itself: every verb's help has an example that works, and shells complete all there is."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT
from strata_analysis.cli import _parser as analysis_parser

VERB = re.compile(r"^  ([a-z]+) +\S", re.MULTILINE)
OPTION = re.compile(r"^  (?:-h, ?)?(--[a-z-]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def binary():
    return Path(os.environ.get("STRATA", ROOT / "build" / "cpu" / "strata"))


@pytest.fixture(scope="module")
def helps(binary):
    """(verb, sub-verb, …) -> what it says with --help, for all that --help leads to."""

    def text(*verbs):
        return subprocess.run([binary, *verbs, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout

    found = {}

    def visit(*verbs):
        found[verbs] = text(*verbs)
        _, _, below = found[verbs].partition("\nSubcommands:\n")
        for verb in VERB.findall(below.partition("\n\n")[0]):
            visit(*verbs, verb)

    visit()
    return found


def examples(helps):
    return {
        verbs: line.removeprefix("Example:").strip()
        for verbs, text in helps.items()
        for line in text.splitlines()
        if line.startswith("Example:")
    }


def test_every_verb_has_an_example_of_its_own(helps):
    assert len(helps) > 20
    for verbs, text in helps.items():
        if verbs == ("compare",):
            assert "examples:\n  strata compare " in text
            continue
        example = examples(helps)[verbs]
        assert f"strata {' '.join(verbs)}" in example, (verbs, example)


def test_the_examples_work(helps, binary, tmp_path):
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    environment = os.environ | {"PATH": f"{binary.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def bash(command):
        ended = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    # What some of them need: a sweep that was submitted and has ended, under both names that the examples use.
    bash("strata submit experiments/first.toml --site local --set train.steps=8 --set measure.peak=quick")
    (tmp_path / "results" / "quickstart").symlink_to("first")
    for verbs, example in examples(helps).items():
        # Measuring is not waited for; that the words are right is seen all the same.
        if verbs == ("profile",):
            example = example.replace("mpiexec -n 2 ", "") + " --help"
        if verbs == ("run",):
            example += " --set measure.peak=quick"
        if verbs:
            bash(example)
    assert "strategy.name" in (tmp_path / "experiment_files.md").read_text()


def test_the_words_of_compare_are_right(helps):
    commands = re.findall(r"^  (strata compare .*?)(?:  .*)?$", helps[("compare",)], re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        assert analysis_parser().parse_args(shlex.split(command)[1:]).verb == "compare"


# ---- completion

BASH = """
source <(strata completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_strata
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def complete(binary, tmp_path):
    """complete(*words) -> what bash proposes for the last of them. Words as bash cuts them: = is one."""
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine.txt").touch()

    def run(*words):
        environment = os.environ | {"PATH": f"{binary.parent}:{os.environ['PATH']}"}
        ended = subprocess.run(
            ["bash", "--norc", "-c", BASH, "bash", "strata", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert not ended.stderr, ended.stderr
        return [line for line in ended.stdout.splitlines() if line]

    return run


def test_bash_completes_every_verb_and_option_of_help(helps, complete):
    for verbs, text in helps.items():
        options = set(OPTION.findall(text))
        assert "--help" in options
        assert set(complete(*verbs, "--")) == options, verbs
        below = [found[-1] for found in helps if found[:-1] == verbs and found]
        if below:
            assert complete(*verbs, "") == below


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["pro"], ["program", "profile"]),
        (["program", "--format", ""], ["text", "chakra", "goal"]),
        (["program", "--format", "=", "ch"], ["chakra"]),
        (["program", "--rank", "0", "exp"], ["experiments"]),
        (["list", "models", "--flops", "m"], ["megatron"]),
        (["run", "mi"], ["mine.toml"]),
        (["run", "--set", "train.dt"], ["train.dtype="]),
        (["run", "--set", "train.dtype", "="], ["fp32", "bf16"]),
        (["run", "--set", "train.dtype", "=", "b"], ["bf16"]),
        (["run", "--set", "train.dtype", "=", "bf16", "--qu"], ["--quiet"]),
        (["run", "--set", "data.shuffle", "=", ""], ["true", "false"]),
        (["run", "--set", "strategy.name", "=", "dd"], ["ddp"]),
        (["run", "--set", "model.name", "=", "gpt2-s"], ["gpt2-small"]),
        (["run", "--set", "cluster", "=", "a800"], ["a800-ib"]),
        (["submit", "--site", ""], ["local", "slurm", "testbed"]),
        (["submit", "--site", "m"], ["mine.toml"]),
        (["validate", "x.csv", "--cluster", "a100-v"], ["a100-vtrain"]),
        (["resume", "results/x", "--class", "h"], ["hang"]),
        (["compare", "results/x", "--baseline", "dd"], ["ddp"]),
        (["compare", "results/x", "--candidate", "=", "dd"], ["ddp"]),
        (["completion", "z"], ["zsh"]),
        (["reference", ""], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_completes_values(complete, words, proposed):
    assert complete(*words) == proposed


def completed_line(shell, start, typed, binary, folder):
    """What an interactive shell makes of a line that a tab ends."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"no {shell[0]} here")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ |= {
            "PATH": f"{binary.parent}:{os.environ['PATH']}",
            "TERM": "dumb",
            "PS1": "> ",
            "HOME": str(folder),
        }
        os.execvp(shell[0], shell)
    try:
        heard = ""

        def wait_for(pattern):
            nonlocal heard
            deadline = time.monotonic() + 30
            while not (found := re.search(pattern, heard, re.MULTILINE)):
                assert time.monotonic() < deadline, heard
                if select.select([terminal], [], [], 0.2)[0]:
                    heard += os.read(terminal, 65536).decode(errors="replace").replace("\r", "")
            return found

        os.write(terminal, f"{start}; echo rea''dy\n".encode())
        wait_for("^ready$")
        # The line becomes the words of an echo, in front of it and behind it.
        os.write(terminal, f"{typed}\t".encode() + b"\x01echo 'answer'=\x05=end\n")
        return wait_for("^answer=(.*)=end$")[1]
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("strata progr", "strata program "),
        ("strata list mod", "strata list models "),
        ("strata program --format ch", "strata program --format chakra "),
        ("strata run --set train.dtype=b", "strata run --set train.dtype=bf16 "),
        ("strata run --set train.dt", "strata run --set train.dtype="),
        ("strata run first.t", "strata run first.toml "),
        ("strata validate x --cluster a100-v", "strata validate x --cluster a100-vtrain "),
        ("strata compare x --basel", "strata compare x --baseline"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_an_interactive_shell(shell, typed, line, binary, tmp_path):
    (tmp_path / "first.toml").touch()
    start = {
        "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(strata completion bash)"),
        "zsh": (["zsh", "-f", "-i"], "autoload -U compinit && compinit -u -D && source <(strata completion zsh)"),
    }[shell]
    assert completed_line(*start, typed, binary, tmp_path).rstrip(" =") == line.rstrip(" =")


# ---- what is believed


def planted_site(folder):
    """Its name is a command."""
    sites = folder / "jobscripts" / "sites"
    sites.mkdir(parents=True)
    (sites / "$(touch${IFS}ran).toml").write_text('scheduler = "none"\n')
    (sites / "mine.toml").write_text('scheduler = "none"\n')


def test_tab_runs_nothing_that_a_name_says(complete, tmp_path):
    planted_site(tmp_path)
    assert complete("submit", "--site", "mi") == ["mine.toml", "mine"]
    assert complete("submit", "--site", "") == ["local", "mine", "slurm", "testbed"]
    assert complete("submit", "--site", "$") == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_in_an_interactive_shell_runs_nothing_either(shell, binary, tmp_path):
    planted_site(tmp_path)
    test_an_interactive_shell(shell, "strata submit x --site loc", "strata submit x --site local ", binary, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_names_are_looked_up_in_ones_own_folders_alone(binary, tmp_path):
    """Not above them, and not where others may write."""
    sites = tmp_path / "jobscripts" / "sites"
    sites.mkdir(parents=True)
    (sites / "foreign.toml").write_text('setup = ["echo foreign"]\n')
    (tmp_path / "clusters").mkdir()
    shutil.copy(ROOT / "experiments/clusters/a800-ib.toml", tmp_path / "clusters/foreign.toml")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    def asked(*words, cwd):
        return subprocess.run([binary, *words], cwd=cwd, capture_output=True, text=True, timeout=60)

    for listed in ("sites", "clusters"):
        assert "foreign" in asked("list", listed, cwd=tmp_path).stdout
        assert "foreign" not in asked("list", listed, cwd=below).stdout
    first = ROOT / "experiments/first.toml"
    ended = asked("submit", first, "--site", "foreign", "--dry-run", "--no-plan", cwd=tmp_path)
    assert f"site foreign of {sites}/foreign.toml" in ended.stdout
    assert asked("submit", first, "--site", "foreign", "--dry-run", "--no-plan", cwd=below).returncode == 2
    sites.chmod(0o777)
    ended = asked("submit", first, "--site", "foreign", "--dry-run", "--no-plan", cwd=tmp_path)
    assert ended.returncode == 2
    assert f"not used: {sites} (everybody may write {sites})" in ended.stderr
    assert asked("list", "sites", cwd=tmp_path).stderr == f"strata: not used: {sites} (everybody may write {sites})\n"


def test_python_is_the_installations(binary, tmp_path):
    """Neither one that stands above the binary nor modules of the working directory."""
    shutil.copy(binary, tmp_path / "strata")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    python.chmod(0o755)
    for module in ("numpy", "strata_analysis", "json"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    # An empty entry means the working directory to Python.
    for path in (None, "", ":/nowhere", "/nowhere:"):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {} if path is None else {"PYTHONPATH": path}
        ended = subprocess.run(
            [tmp_path / "strata", "table", "--help"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr
        assert "usage" in ended.stdout.lower()
        assert not (tmp_path / "ran").exists(), path


@pytest.mark.skipif(os.getuid() != 0, reason="plants files as another user, which needs root")
def test_what_somebody_else_has_put_beside_the_binary_is_no_installation(binary, tmp_path):
    """As /tmp/share/strata is beside /tmp/mine/strata."""
    tmp_path.chmod(0o1777)
    mine, planted = tmp_path / "mine", tmp_path / "share" / "strata"
    python, sites = planted / ".venv" / "bin" / "python", planted / "jobscripts" / "sites"
    for folder in (mine, python.parent, sites):
        folder.mkdir(parents=True)
    shutil.copy(binary, mine / "strata")
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    python.chmod(0o755)
    (sites / "slurm.toml").write_text('setup = ["echo planted"]\n')

    def is_believed():
        def asked(*words):
            ended = subprocess.run([mine / "strata", *words], cwd="/", capture_output=True, text=True, timeout=60)
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        asked("table", "--help")
        script = asked("submit", ROOT / "experiments/first.toml", "--site", "slurm", "--dry-run", "--no-plan")
        has_run = (tmp_path / "ran").exists()
        assert ("echo planted" in script) == has_run
        return has_run

    for path in (planted.parent, planted):
        os.chown(path, 65534, 65534)
    assert not is_believed()
    os.chown(planted, 0, 0)
    planted.chmod(0o777)
    assert not is_believed()
    planted.chmod(0o755)
    assert is_believed()  # an installation of this user's


@pytest.mark.parametrize(
    "words", ["expand FILE", "plan FILE --point 0", "reference", "list models", "--help", "simulate FILE"]
)
def test_output_that_is_lost_is_no_success(words, binary, tmp_path):
    first = ROOT / "experiments/quickstart_at_scale.toml"
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [binary, *words.replace("FILE", str(first)).split()], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=60,
        )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "strata: standard output cannot be written" in ended.stderr


def test_a_closed_output_is_said(binary):
    ended = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", binary, "reference"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr == "strata: standard output cannot be written: Bad file descriptor\n"


def test_what_is_meant_for_the_screen_reaches_no_file(binary, experiment, tmp_path):
    """The first file that is opened would have the number of a closed standard output."""
    words = ["sh", "-c", '"$@" >&-', "sh", binary, "run", experiment(ranks=1)]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    for file in tmp_path.glob("results/e2e/**/*"):
        assert file.is_dir() or b"tokens/s" not in file.read_bytes(), file
    (lines,) = tmp_path.glob("results/e2e/*/1.jsonl")
    assert all(json.loads(line) for line in lines.read_text().splitlines())
