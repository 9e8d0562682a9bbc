#!/usr/bin/env python3
"""Plants the faults of this folder one after another and runs the tests that should notice.

    tests/faults/run.py                    all of them: twenty minutes on two idle cores, once built
    tests/faults/run.py --only 'cost/*'    those whose names match; several patterns may be given
    tests/faults/run.py --list             what there is
    tests/faults/run.py --check            seconds, without a build: whether every patch applies to the present tree

Faults are planted in a worktree of its own, build/faults/tree, at what is committed or staged here, with a build that
stays: a fault costs what its file and the tests named take to build and run. A fault is caught if a test fails that
passes on the clean tree; what does not build is caught by nobody. Ends with 1 if a fault is missed or cannot be judged.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
TREE = ROOT / "build" / "faults" / "tree"
BUILD = TREE / "build" / "cpu"
REPORT = TREE.parent / "report.xml"
# What is wrong is wrong at any level of optimisation, and this one builds in half the time.
OPTIONS = (
    "-DBUILD_TESTING=ON",
    "-DSTRATA_PCH=ON",
    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1",
    "-DCMAKE_CXX_FLAGS=-Wno-maybe-uninitialized",
)
ENVIRONMENT = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}


class FaultError(Exception):
    """A patch that is not as it should be, or a tree on which it cannot be judged."""


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str  # folder/what_is_wrong
    patch: Path
    sentence: str
    caught_by: str
    changed: tuple[str, ...]  # files
    lines: tuple[str, ...]  # added and removed

    @staticmethod
    def read(patch: Path) -> Fault:
        name = f"{patch.parent.name}/{patch.stem}"
        header, _, diff = patch.read_text(encoding="utf-8").partition("\n--- ")
        words = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
        for key in ("Fault", "Caught by"):
            if not words.get(key, "").strip():
                raise FaultError(f"{name}: no line `{key}: ...` before the diff")
        changed = tuple(re.findall(r"^\+\+\+ b/(\S+)$", diff, re.MULTILINE))
        if not changed:
            raise FaultError(f"{name}: no diff against b/<file>")
        lines = tuple(line for line in diff.splitlines() if re.match(r"[+-](?!\+\+ |-- )", line))
        return Fault(name, patch, words["Fault"], words["Caught by"], changed, lines)

    @property
    def is_of_pytest(self) -> bool:
        return self.caught_by.startswith("tests/")

    @property
    def targets(self) -> list[str]:
        """What must be built before the tests named can run."""
        if self.is_of_pytest:
            return ["write_sample_results"] if "tests/analysis/" in self.caught_by else ["tier_e2e"]
        plain = self.caught_by.replace("\\", "")
        found = re.findall(r"unit\.\w+|mpi\.\w+\.dead_peer|mpi\.\w+(?=\.test_)", plain)
        if re.search(r"\b(e2e|slurm)\.", plain):
            found.append("strata")
        return sorted(set(found))

    def check(self) -> None:
        """Everything that can be said without a build."""
        folder = self.patch.parent.name
        if not self.sentence.endswith("."):
            raise FaultError(f"{self.name}: `Fault:` is a sentence")
        for file in self.changed:
            if file.startswith("tests/"):
                raise FaultError(f"{self.name}: changes {file}; what is tested is wrong, not the tests")
            if not file.startswith((f"src/{folder}/", f"{folder}/")):
                raise FaultError(f"{self.name}: changes {file}, which is not of {folder}")
        if self.is_of_pytest:
            for test in self.caught_by.split():
                file, _, function = test.partition("::")
                if not (ROOT / file).is_file() or f"def {function}(" not in (ROOT / file).read_text(encoding="utf-8"):
                    raise FaultError(f"{self.name}: there is no test {test}")
        else:
            re.compile(self.caught_by)
            if open_name := re.search(r"(mpi\\\.\w+|unit)\\\.\w+(?!\w|\\\.|\$)", self.caught_by):
                raise FaultError(f"{self.name}: {open_name[0]} may begin another test's name; end it with \\. or $")
            for tests in re.findall(r"unit(?:\.\w+)+|mpi\.\w+\.\w+", self.caught_by.replace("\\", "")):
                place = ROOT / "tests" / tests.replace(".", "/")
                of_python = place.with_name(f"test_{place.name}.py")
                if not (place.is_dir() or place.with_suffix(".cpp").is_file() or of_python.is_file()):
                    raise FaultError(f"{self.name}: there is no {place.relative_to(ROOT)} with tests {tests}.*")
            if not self.targets:
                raise FaultError(f"{self.name}: `Caught by:` names neither tests of ctest nor of pytest")
        applied = git("apply", "--check", str(self.patch), at=ROOT, check=False)
        if applied.returncode != 0:
            raise FaultError(f"{self.name}: does not apply: {applied.stderr.strip()}")


def git(*words: str, at: Path, check: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *words], cwd=at, check=check, capture_output=True, text=True)


def all_faults() -> list[Fault]:
    return [Fault.read(patch) for patch in sorted(FOLDER.glob("*/*.patch"))]


def check_all(faults: list[Fault]) -> None:
    named: dict[object, str] = {}
    for fault in faults:
        fault.check()
        for part in (fault.sentence, fault.lines):
            other = named.setdefault(part, fault.name)
            if other != fault.name:
                raise FaultError(f"{fault.name}: is {other} again")


# ------------------------------------------------------------------------------------------------------ tree and build


def prepare_tree() -> None:
    """The worktree at what is committed or staged, whatever an earlier run that was interrupted left there."""
    commit = git("stash", "create", at=ROOT).stdout.strip() or "HEAD"
    commit = git("rev-parse", commit, at=ROOT).stdout.strip()
    if not (TREE / ".git").exists():
        TREE.parent.mkdir(parents=True, exist_ok=True)
        git("worktree", "prune", at=ROOT)
        git("worktree", "add", "--detach", str(TREE), commit, at=ROOT)
    git("checkout", "--detach", "--force", commit, at=TREE)
    environment = TREE / ".venv"
    if not environment.exists():
        environment.symlink_to(ROOT / ".venv")
    run = subprocess.run(
        ["cmake", "--preset", "cpu", *OPTIONS], cwd=TREE, env=ENVIRONMENT, capture_output=True, text=True
    )
    if run.returncode != 0:
        raise FaultError(f"{TREE}: cmake: {run.stderr}")


def build(targets: list[str], jobs: int) -> str:
    """What went wrong; empty: nothing."""
    run = subprocess.run(
        ["cmake", "--build", str(BUILD), "-j", str(jobs), "--target", *targets],
        cwd=TREE,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return "" if run.returncode == 0 else "\n".join(run.stdout.splitlines()[-15:])


# --------------------------------------------------------------------------------------------------------------- tests


@dataclasses.dataclass
class Result:
    passed: dict[str, float]  # seconds by test
    failed: dict[str, float]
    hangs: bool = False

    @property
    def seconds(self) -> float:
        return sum(self.passed.values()) + sum(self.failed.values())


def run_within(words: list[str], seconds: float | None, environment: dict[str, str]) -> bool:
    """Whether it ended by itself. What it started is ended with it."""
    process = subprocess.Popen(
        words, cwd=TREE, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    for patience, last_resort in ((seconds, signal.SIGTERM), (20.0, signal.SIGKILL), (None, signal.SIGKILL)):
        try:
            process.wait(patience)
            return patience == seconds
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, last_resort)
    return False


def tests_of(report: Path) -> Result:
    result = Result({}, {})
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        bad = any(case.find(word) is not None for word in ("failure", "error"))
        (result.failed if bad else result.passed)[case.get("name", "?")] = float(case.get("time", 0.0))
    return result


def run_reported(words: list[str], seconds: float | None, environment: dict[str, str]) -> Result:
    REPORT.unlink(missing_ok=True)
    ended = run_within(words, seconds, environment)
    result = tests_of(REPORT) if REPORT.exists() else Result({}, {})
    result.hangs = not ended
    return result


def run_ctest(which: list[str], seconds: float | None) -> Result:
    words = ["ctest", "--test-dir", str(BUILD), *which, "--no-tests=error", "--output-junit", str(REPORT)]
    return run_reported(words, seconds, ENVIRONMENT)


def run_tests(caught_by: str, is_of_pytest: bool, seconds: float | None = None) -> Result:
    if not is_of_pytest:
        return run_ctest(["-R", caught_by], seconds)
    python = str(TREE / ".venv" / "bin" / "python")
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={REPORT}", *caught_by.split()]
    places = {"PYTHONPATH": str(TREE / "analysis"), "STRATA": str(BUILD / "strata"), "STRATA_BUILD": str(BUILD)}
    return run_reported(words, seconds, ENVIRONMENT | places)


def check_clean(faults: list[Fault], jobs: int) -> dict[str, Result]:
    """By set of tests: what they take where nothing is wrong. They exist and pass."""
    print(f"building and running the tests of {len(faults)} faults on the clean tree", flush=True)
    if complaint := build(sorted({target for fault in faults for target in fault.targets}), jobs):
        raise FaultError(f"the clean tree does not build:\n{complaint}")
    of_ctest = sorted({fault.caught_by for fault in faults if not fault.is_of_pytest})
    listed = subprocess.run(["ctest", "--test-dir", str(BUILD), "-N"], check=True, capture_output=True, text=True)
    names = {name: int(number) for number, name in re.findall(r"^ *Test +#(\d+): (.*)$", listed.stdout, re.MULTILINE)}
    for expression in of_ctest:
        if not any(re.search(expression, name) for name in names):
            raise FaultError(f"{expression}: there is no such test")
    # By number: all expressions together have more parentheses than ctest takes.
    wanted = sorted({names[name] for name in names if any(re.search(expression, name) for expression in of_ctest)})
    everything = run_ctest(["-I", f"0,0,0,{','.join(map(str, wanted))}"], None) if wanted else Result({}, {})
    results = {}
    for expression in of_ctest:
        matching = {name: time for name, time in everything.passed.items() if re.search(expression, name)}
        wrong = {name: time for name, time in everything.failed.items() if re.search(expression, name)}
        results[expression] = Result(matching, wrong)
    for tests in sorted({fault.caught_by for fault in faults if fault.is_of_pytest}):
        results[tests] = run_tests(tests, True)
    for tests, result in results.items():
        if result.failed:
            raise FaultError(f"{tests}: fails on the clean tree: {', '.join(result.failed)}")
        if not result.passed:
            raise FaultError(f"{tests}: there is no such test")
    return results


def judge(fault: Fault, clean: Result, jobs: int) -> tuple[str, str]:
    """caught, MISSED or unclear; and by what."""
    git("apply", str(fault.patch), at=TREE)
    begin = time.monotonic()
    try:
        if complaint := build(fault.targets, jobs):
            return "unclear", f"does not build:\n{complaint}"
        built = time.monotonic()
        # A hang is ended long before the tests' own time limits.
        found = run_tests(fault.caught_by, fault.is_of_pytest, 60.0 + 10.0 * clean.seconds)
        seconds = f"{built - begin:.0f} s to build, {time.monotonic() - built:.0f} s to run"
    finally:
        git("apply", "-R", str(fault.patch), at=TREE)
    if found.hangs:
        return "caught", f"a hang  ({seconds})"
    if not found.failed and not found.passed:
        return "unclear", "the tests did not run"
    if not found.failed:
        return "MISSED", f"by {len(found.passed)} tests  ({seconds})"
    first, *others = sorted(found.failed)
    return "caught", f"{first}{f' and {len(others)} more' if others else ''}  ({seconds})"


def plant(faults: list[Fault], jobs: int) -> int:
    prepare_tree()
    clean = check_clean(faults, jobs)
    counts = {"caught": 0, "MISSED": 0, "unclear": 0}
    for fault in faults:
        word, by_what = judge(fault, clean[fault.caught_by], jobs)
        counts[word] += 1
        print(f"{word:7}  {fault.name}: {by_what}", flush=True)
    print(f"{len(faults)} planted, {counts['caught']} caught, {counts['MISSED']} missed, {counts['unclear']} unclear")
    return 0 if counts["caught"] == len(faults) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name, sentence and tests of each fault")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="of names: folder/what_is_wrong, with * and ?"
    )
    parser.add_argument("--check", action="store_true", help="whether every patch is well-formed and applies")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the build")
    arguments = parser.parse_args()
    try:
        faults = all_faults()
        check_all(faults)
        if arguments.only:
            faults = [f for f in faults if any(fnmatch.fnmatch(f.name, pattern) for pattern in arguments.only)]
            if not faults:
                raise FaultError(f"no fault is named {' or '.join(arguments.only)}")
        if arguments.check:
            print(f"faults: {len(faults)} patches apply")
            return 0
        if arguments.list:
            for fault in faults:
                print(f"{fault.name}\n    {fault.sentence}\n    {fault.caught_by}")
            return 0
        return plant(faults, max(1, arguments.jobs))
    except FaultError as error:
        print(f"faults: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
