#!/usr/bin/env python3
"""How much of src/exec/cuda has never executed, because the emulation puts something else in its place.

never_executed.py            a line a file, then "of N lines of src/exec/cuda: M never executed, K planned, not
                             computed"
never_executed.py --check    the last line alone; fails where tests/cuda/README.md names other files

A line is one with code on it. Which sources the emulation compiles says tests/cuda/tests.cmake. Of those that it leaves
out cuDNN itself plans some without a GPU (test_attention_plan.cpp, test_convolution_plan.cpp): their lines execute,
what they ask for is never computed.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/exec/cuda"
# What test_attention_plan.cpp and test_convolution_plan.cpp call, with a driver that is none.
PLANNED = {"attention_plan.cpp", "convolution_plan.cpp", "cudnn_graph.cpp"}


def num_lines(path):
    """Lines with code: neither blank nor comment alone."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    return sum(1 for line in text.splitlines() if line.strip() and not line.lstrip().startswith("//"))


def emulated(tests_cmake):
    """Names of the sources beside kernels/ that the emulation compiles."""
    (names,) = re.findall(
        r"foreach\(file IN ITEMS ([^)]*)\)\s*target_sources\(cuda_emulation PRIVATE \S+/exec/cuda/\$\{file\}\.cpp\)",
        tests_cmake,
    )
    return {f"{name}.cpp" for name in names.split()}


def account(sources=SOURCES):
    """(lines of all sources, lines by file that never executed, lines by file that were planned only)."""
    executed = emulated((ROOT / "tests/cuda/tests.cmake").read_text(encoding="utf-8"))
    everything = sorted(path for path in sources.rglob("*") if path.suffix in {".cpp", ".cu", ".cuh", ".hpp"})
    total = sum(map(num_lines, everything))
    left_out = {path.name: num_lines(path) for path in sources.glob("*.cpp") if path.name not in executed}
    planned = {name: lines for name, lines in left_out.items() if name in PLANNED}
    return total, {name: lines for name, lines in left_out.items() if name not in PLANNED}, planned


def named_in_readme(text):
    """Files in the first column of the README's tables."""
    return set(re.findall(r"^\| `(\w+\.cpp)` \|", text, re.M))


def main(words):
    total, never, planned = account()
    if words != ["--check"]:
        for kind, files in (("never executed", never), ("planned, not computed", planned)):
            for name, lines in sorted(files.items()):
                print(f"{lines:6d} {kind}: {name}")
    print(
        f"of {total} lines of src/exec/cuda: {sum(never.values())} never executed, {sum(planned.values())} planned, "
        "not computed"
    )
    named = named_in_readme((ROOT / "tests/cuda/README.md").read_text(encoding="utf-8"))
    if words == ["--check"] and named != set(never) | set(planned):
        print(f"tests/cuda/README.md names {sorted(named)}, and these are {sorted(set(never) | set(planned))}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
