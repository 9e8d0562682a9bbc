#!/usr/bin/env python3
"""Fail on file names that collect leftovers, and on two modes whose names become one symbol."""

import pathlib
import re
import sys

LEFTOVERS = re.compile(r"(^|_)(utils?|common|misc|helpers?|manager)(_|$)")


def stem_of(mode: str) -> str:
    """The rule of planners/planner.hpp: file, symbol and test name of a mode."""
    stem = mode.replace("-", "_").replace("+", "_plus_")
    return f"m_{stem}" if stem[:1].isdigit() else stem


def problems():
    for file in sorted(pathlib.Path("src").rglob("*.?pp")):
        if LEFTOVERS.search(file.stem):
            yield f"{file}: a name that says nothing"
        if file.stem != file.stem.lower():
            yield f"{file}: file names are snake_case"
    seen: dict[str, str] = {}
    for file in sorted(pathlib.Path("src/planners").glob("*.cpp")):
        for mode in re.findall(
            r'string_view name\(\) const override \{ return "([^"]+)"; \}',
            file.read_text(),
        ):
            if stem_of(mode) != file.stem:
                yield f"{file}: mode {mode!r} belongs in {stem_of(mode)}.cpp"
            if stem_of(mode) in seen:
                yield f"{file}: modes {mode!r} and {seen[stem_of(mode)]!r} collide"
            seen[stem_of(mode)] = mode


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) or "names: ok")
    sys.exit(1 if found else 0)
