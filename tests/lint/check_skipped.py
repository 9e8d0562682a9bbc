#!/usr/bin/env python3
"""Print every test that was skipped or not run, and compare with the committed list.

    check_skipped.py build/cpu build/asan

reads what tests/run.sh left in <build>/reports: ctest's JUnit file, and those of the programs that hold several tests
in one ctest test (MPI tests, pytest). tests/lint/skipped.txt holds, a line each, the name of every test that may be
skipped and why; * stands for any part of a name. A test that is skipped without standing there fails.
"""

import fnmatch
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def cases(reports: pathlib.Path):
    """(name, was it skipped) of every test in every report."""
    for file in sorted(reports.rglob("*.xml")):
        prefix = "" if file.stem.startswith("ctest") else f"{file.stem}."
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            name = case.get("name") if not prefix else f"{prefix}{case.get('classname')}.{case.get('name')}"
            # ctest: run, fail, notrun, disabled. GTest: status run or notrun, result completed or skipped.
            absent = case.get("status") in {"notrun", "disabled"} or case.get("result") in {"skipped", "suppressed"}
            yield name, absent or case.find("skipped") is not None


def main(builds: list[str]) -> int:
    lines = pathlib.Path("tests/lint/skipped.txt").read_text().splitlines()
    expected = [name for line in lines if (name := line.split("#")[0].strip())]
    unexpected = 0
    for build in builds:
        reports = pathlib.Path(build, "reports")
        found = list(cases(reports))
        if not found:
            print(f"{reports}: no report of any test")
            return 1
        skipped = [name for name, absent in found if absent]
        for name in skipped:
            known = any(fnmatch.fnmatchcase(name, pattern) for pattern in expected)
            unexpected += not known
            print(f"skipped: {name}{'' if known else '  (not expected)'}")
        print(f"{build}: {len(found)} tests, of which skipped {len(skipped)}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
