"""`collect` and `report` of a folder, broken at each call.

Run in the environment of a BrokenDisk, by test_disk_faults.py. A process that has loaded the package forks for each
fault. Ends by an AssertionError where a rule is broken.

Usage: collect_on_a_broken_disk.py FOLDER PAGE
"""

import contextlib
import copy
import io
import itertools
import os
import sys
from pathlib import Path

from disk_faults import KILL, BrokenDisk, was_killed
from strata_analysis import collect, load, report
from strata_analysis.cli import main

ERRORS = {
    "write": ("EIO", "ENOSPC", KILL),
    "close": ("EIO", "EDQUOT", KILL),
    "rename": ("EIO", KILL),
    "fsync": ("EIO", "EDQUOT", KILL),
}


is_deep = os.environ.get("STRATA_DEEP") == "1"


def outcome(verb, folder):
    """Exit code and standard error of a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = main([verb, str(folder)])
            except BaseException as error:
                print("not caught:", repr(error), file=sys.stderr)
                code = 70
        os.write(writing, said.getvalue().encode())
        os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as end:
        said = end.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(verb, folder, disk):
    attempts = contents(folder)
    assert outcome(verb, folder) == (0, "")
    good = contents(folder)
    outputs = good.keys() - attempts.keys()
    disk.mend()
    assert outcome(verb, folder)[0] == 0
    counts = disk.counts
    num_faults = 0
    for kind, errors in ERRORS.items():
        assert counts[kind] > 0, (verb, kind)
        next_error = itertools.cycle(errors)
        # A report writes one file a run, all alike.
        for number in range(1, counts[kind] + 1, 1 if counts[kind] <= 6 or is_deep else 3):
            error = next(next_error)
            fault = (verb, kind, number, error)
            for path in contents(folder).keys() - attempts.keys():
                (folder / path).unlink()
            for path in outputs:
                (folder / path).write_bytes(b"of before")
            disk.break_at(kind, number, error)
            code, said = outcome(verb, folder)
            hits = disk.hits
            disk.mend()
            assert hits > 0, fault
            left = contents(folder)
            for path in outputs:
                allowed = (good[path],) if code == 0 else (good[path], b"of before")
                assert left[path] in allowed, (fault, path)
            for path, content in attempts.items():
                assert left[path] == content, (fault, path)
            if error == KILL:
                assert was_killed(code), (fault, code, said)
            else:
                assert code == 2, (fault, code, said)
                assert said.startswith("strata: ") and said.count("\n") == 1, (fault, said)
                assert left.keys() == good.keys(), (fault, left.keys() - good.keys())
            num_faults += 1
    print(verb, num_faults, "faults", counts)


def prepare(folder):
    """What is read and computed, once for all forks. It writes nothing, and starts none of pyarrow's threads."""
    results = load.load(folder)
    content = report.content_of(results, folder)
    collect.load = report.load = lambda *_: copy.deepcopy(results)
    report.content_of = lambda *_: content


def run(folder, page):
    disk = BrokenDisk(page, folder)
    prepare(folder)
    for verb in ("collect", "report"):
        check(verb, folder, disk)


run(Path(sys.argv[1]), Path(sys.argv[2]))
