#!/usr/bin/env python3
"""Print the tests that took longest.

    slowest.py 10 build/cpu build/asan

reads the JUnit files that tests/run.sh left in <build>/reports: ctest's, and pytest's of the analysis.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def times(build: str):
    """(seconds, name) of every test that ctest or the analysis' pytest ran."""
    for file in pathlib.Path(build, "reports").glob("**/*.xml"):
        if not file.stem.startswith(("ctest", "analysis")):
            continue
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            name = case.get("name") if file.stem != "analysis" else f"{case.get('classname')}.{case.get('name')}"
            yield float(case.get("time") or 0), f"{build}: {name}"


def main(count: str, *builds: str) -> None:
    for seconds, name in sorted((row for build in builds for row in times(build)), reverse=True)[: int(count)]:
        print(f"{seconds:8.1f} s  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
