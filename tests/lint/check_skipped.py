#!/usr/bin/env python3
"""Print every test that was skipped and compare their number with the committed one.

tests/lint/skipped.txt holds, a line each, the name of every test that may be skipped and why. A test that is skipped
without standing there fails; one that stands there and runs is only reported.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def skipped(build: pathlib.Path):
    for file in sorted(build.glob("ctest-*.xml")):
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            if case.get("status") in {"notrun", "disabled"} or case.find("skipped") is not None:
                yield case.get("name")


if __name__ == "__main__":
    expected = {
        line.split("#")[0].strip()
        for line in pathlib.Path("tests/lint/skipped.txt").read_text().splitlines()
        if line.split("#")[0].strip()
    }
    found = set(skipped(pathlib.Path(sys.argv[1])))
    for name in sorted(found):
        print(f"skipped: {name}{'' if name in expected else '  (not expected)'}")
    for name in sorted(expected - found):
        print(f"expected to be skipped, but ran: {name}")
    print(f"skipped tests: {len(found)}, of which expected {len(found & expected)} of {len(expected)}")
    sys.exit(1 if found - expected else 0)
