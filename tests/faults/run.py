#!/usr/bin/env python3
"""Plants the faults of this folder, one at a time on each core, and runs the tests that should notice.

    tests/faults/run.py                    all of them: an hour on two idle cores
    tests/faults/run.py --only 'cost/*'    those whose names match; several patterns may be given
    tests/faults/run.py --list             what there is
    tests/faults/run.py --check            seconds, without a build: whether every patch applies to the present tree

Faults are planted in worktrees of their own, build/faults/1, 2, ..., one a core, at what is committed or staged here,
with builds that stay: a fault costs what its file and the tests named take to build and run. A fault is caught if a
test fails that passes on the clean tree; what does not build is caught by nobody. Ends with 1 if a fault is missed or
cannot be judged.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import os
import queue
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
TREES = ROOT / "build" / "faults"
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


# --------------------------------------------------------------------------------------------------------------- trees


@dataclasses.dataclass
class Result:
    passed: dict[str, float]  # seconds by test
    failed: dict[str, float]
    hangs: bool = False

    @property
    def seconds(self) -> float:
        return sum(self.passed.values()) + sum(self.failed.values())


def tests_of(report: Path) -> Result:
    result = Result({}, {})
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        bad = any(case.find(word) is not None for word in ("failure", "error"))
        (result.failed if bad else result.passed)[case.get("name", "?")] = float(case.get("time", 0.0))
    return result


class Tree:
    """A worktree with its build, in which one fault at a time is planted."""

    def __init__(self, number: int, commit: str) -> None:
        """At that commit, whatever an earlier run that was interrupted left there."""
        self.root = TREES / str(number)
        self.build_folder = self.root / "build" / "cpu"
        self.report = TREES / f"report{number}.xml"
        if not (self.root / ".git").exists():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            git("worktree", "prune", at=ROOT)
            git("worktree", "add", "--detach", str(self.root), commit, at=ROOT)
        git("checkout", "--detach", "--force", commit, at=self.root)
        environment = self.root / ".venv"
        if not environment.exists():
            environment.symlink_to(ROOT / ".venv")
        run = subprocess.run(
            ["cmake", "--preset", "cpu", *OPTIONS], cwd=self.root, env=ENVIRONMENT, capture_output=True, text=True
        )
        if run.returncode != 0:
            raise FaultError(f"{self.root}: cmake: {run.stderr}")

    def build(self, targets: list[str], jobs: int) -> str:
        """What went wrong; empty: nothing."""
        run = subprocess.run(
            ["cmake", "--build", str(self.build_folder), "-j", str(jobs), "--target", *targets],
            cwd=self.root,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return "" if run.returncode == 0 else "\n".join(run.stdout.splitlines()[-15:])

    def _run_within(self, words: list[str], seconds: float | None, environment: dict[str, str]) -> bool:
        """Whether it ended by itself. What it started is ended with it."""
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen(
            words, cwd=self.root, env=environment, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
        for patience, last_resort in ((seconds, signal.SIGTERM), (20.0, signal.SIGKILL), (None, signal.SIGKILL)):
            try:
                process.wait(patience)
                return patience == seconds
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, last_resort)
        return False

    def _run_reported(self, words: list[str], seconds: float | None, environment: dict[str, str]) -> Result:
        self.report.unlink(missing_ok=True)
        ended = self._run_within(words, seconds, environment)
        result = tests_of(self.report) if self.report.exists() else Result({}, {})
        result.hangs = not ended
        return result

    def run_ctest(self, which: list[str], seconds: float | None = None) -> Result:
        folder, report = str(self.build_folder), str(self.report)
        words = ["ctest", "--test-dir", folder, *which, "--no-tests=error", "--output-junit", report]
        return self._run_reported(words, seconds, ENVIRONMENT)

    def run_pytest(self, tests: str, seconds: float | None = None) -> Result:
        python = str(self.root / ".venv" / "bin" / "python")
        words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={self.report}", *tests.split()]
        strata, build = str(self.build_folder / "strata"), str(self.build_folder)
        places = {"PYTHONPATH": str(self.root / "analysis"), "STRATA": strata, "STRATA_BUILD": build}
        return self._run_reported(words, seconds, ENVIRONMENT | places)

    def run_tests_of(self, fault: Fault, seconds: float) -> Result:
        if fault.is_of_pytest:
            return self.run_pytest(fault.caught_by, seconds)
        return self.run_ctest(["-R", fault.caught_by], seconds)

    def numbers_of_tests(self) -> dict[str, int]:
        """ctest's, by name."""
        words = ["ctest", "--test-dir", str(self.build_folder), "-N"]
        listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        return {name: int(number) for number, name in re.findall(r"^ *Test +#(\d+): (.*)$", listed, re.MULTILINE)}


def prepare_trees(count: int) -> list[Tree]:
    commit = git("stash", "create", at=ROOT).stdout.strip() or "HEAD"
    commit = git("rev-parse", commit, at=ROOT).stdout.strip()
    return [Tree(number, commit) for number in range(1, count + 1)]


# -------------------------------------------------------------------------------------------------------------- faults


def check_clean(trees: list[Tree], faults: list[Fault], cores: int) -> dict[str, Result]:
    """Builds every tree. By set of tests: what they take where nothing is wrong. They exist and pass."""
    print(f"building and running the tests of {len(faults)} faults on the clean tree", flush=True)
    for tree in trees:  # a compiler's cache serves the others what the first has built
        if complaint := tree.build(sorted({target for fault in faults for target in fault.targets}), cores):
            raise FaultError(f"the clean tree does not build:\n{complaint}")
    tree = trees[0]
    of_ctest = sorted({fault.caught_by for fault in faults if not fault.is_of_pytest})
    names = tree.numbers_of_tests()
    for expression in of_ctest:
        if not any(re.search(expression, name) for name in names):
            raise FaultError(f"{expression}: there is no such test")
    # By number: all expressions together have more parentheses than ctest takes.
    wanted = sorted({names[name] for name in names if any(re.search(expression, name) for expression in of_ctest)})
    which = ["-j", str(cores), "-I", f"0,0,0,{','.join(map(str, wanted))}"]
    everything = tree.run_ctest(which) if wanted else Result({}, {})
    results = {}
    for expression in of_ctest:
        matching = {name: time for name, time in everything.passed.items() if re.search(expression, name)}
        wrong = {name: time for name, time in everything.failed.items() if re.search(expression, name)}
        results[expression] = Result(matching, wrong)
    for tests in sorted({fault.caught_by for fault in faults if fault.is_of_pytest}):
        results[tests] = tree.run_pytest(tests)
    for tests, result in results.items():
        if result.failed:
            raise FaultError(f"{tests}: fails on the clean tree: {', '.join(result.failed)}")
        if not result.passed:
            raise FaultError(f"{tests}: there is no such test")
    return results


def judge(tree: Tree, fault: Fault, clean: Result) -> tuple[str, str]:
    """caught, MISSED or unclear; and by what."""
    git("apply", str(fault.patch), at=tree.root)
    begin = time.monotonic()
    try:
        if complaint := tree.build(fault.targets, 1):
            return "unclear", f"does not build:\n{complaint}"
        built = time.monotonic()
        # A hang is ended long before the tests' own time limits.
        found = tree.run_tests_of(fault, 60.0 + 10.0 * clean.seconds)
        seconds = f"{built - begin:.0f} s to build, {time.monotonic() - built:.0f} s to run"
    finally:
        git("apply", "-R", str(fault.patch), at=tree.root)
    if found.hangs:
        return "caught", f"a hang  ({seconds})"
    if not found.failed and not found.passed:
        return "unclear", "the tests did not run"
    if not found.failed:
        return "MISSED", f"by {len(found.passed)} tests  ({seconds})"
    first, *others = sorted(found.failed)
    return "caught", f"{first}{f' and {len(others)} more' if others else ''}  ({seconds})"


def plant(faults: list[Fault], cores: int) -> int:
    begin = time.monotonic()
    trees = prepare_trees(min(cores, len(faults)))
    clean = check_clean(trees, faults, cores)
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def judge_in_a_free_tree(fault: Fault) -> tuple[str, str]:
        tree = free.get()
        try:
            return judge(tree, fault, clean[fault.caught_by])
        finally:
            free.put(tree)

    counts = {"caught": 0, "MISSED": 0, "unclear": 0}
    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        running = {pool.submit(judge_in_a_free_tree, fault): fault for fault in faults}
        for ended in concurrent.futures.as_completed(running):
            word, by_what = ended.result()
            counts[word] += 1
            print(f"{word:7}  {running[ended].name}: {by_what}", flush=True)
    minutes = (time.monotonic() - begin) / 60
    print(
        f"{len(faults)} planted, {counts['caught']} caught, {counts['MISSED']} missed, {counts['unclear']} unclear, "
        f"{minutes:.0f} minutes"
    )
    return 0 if counts["caught"] == len(faults) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name, sentence and tests of each fault")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="of names: folder/what_is_wrong, with * and ?"
    )
    parser.add_argument("--check", action="store_true", help="whether every patch is well-formed and applies")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults that are planted at a time")
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
