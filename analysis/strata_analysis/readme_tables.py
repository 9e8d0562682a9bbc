"""Tables in Markdown files that this package writes from results, between two comments:

  <!-- strata: amsp table_5 -->
  ...
  <!-- end -->

What stands between is replaced: the table of that name in COMPARISONS of the paper's module, the statements below it,
and the commit of the strata that made the numbers. `differences` says where a file and the results disagree.
"""

from __future__ import annotations

import re
from pathlib import Path

from strata_analysis.published.sweeps import Sweeps
from strata_analysis.table import PAPERS_BY_NAME

BLOCK = re.compile(
    r"(?P<begin><!-- strata: (?P<paper>\w+) (?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.S
)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w])")
COMMIT = re.compile(r" at commit [0-9a-f, ]+\.")
TOLERANCE = 0.02


class TableError(ValueError):
    """A comment that names no table, or a file without any."""


def written(text: str, sweeps: Sweeps) -> str:
    """`text` with all of its blocks made anew. @throws TableError, NotRun."""
    if not BLOCK.search(text):
        raise TableError("no `<!-- strata: PAPER TABLE -->` in it")
    return BLOCK.sub(
        lambda block: f"{block['begin']}{body_of(block['paper'], block['name'], sweeps)}{block['end']}", text
    )


def body_of(paper: str, name: str, sweeps: Sweeps) -> str:
    experiment, compare = _comparison(paper, name)
    experiments = (experiment, *getattr(PAPERS_BY_NAME[paper], "BESIDE", {}).get(experiment, ()))
    points = sweeps.points(*experiments)
    tables = (sweeps.results(experiment),) if paper == "cdp" else ()
    comparison = compare(points, *tables)
    kind = "Simulated" if points["simulated"].all() else "Run" if not points["simulated"].any() else "Simulated and run"
    commits = ", ".join(commit[:10] for commit in sweeps.commits(*experiments))
    lines = [f"{kind} at commit {commits}.", "", comparison.markdown()]
    if comparison.statements:
        lines += ["", *(f"- {statement}" for statement in comparison.statements)]
    return "\n".join(lines) + "\n"


def _comparison(paper: str, name: str):
    if paper not in PAPERS_BY_NAME:
        raise TableError(f"no paper {paper}; there are {', '.join(PAPERS_BY_NAME)}")
    known = {
        compare.__name__: (experiment, compare)
        for experiment, all_of in PAPERS_BY_NAME[paper].COMPARISONS.items()
        for compare in all_of
    }
    if name not in known:
        raise TableError(f"no table {name} of {paper}; there are {', '.join(known)}")
    return known[name]


def differences(text: str, sweeps: Sweeps) -> list[str]:
    """A line for each line of a block that the results contradict: other words, or a number that is off by more than
    TOLERANCE and by more than one in its last digit. Which commit made it is not compared.
    """
    found = []
    for old, new in zip(BLOCK.finditer(text), BLOCK.finditer(written(text, sweeps)), strict=True):
        before, after = old["body"].splitlines(), new["body"].splitlines()
        name = f"{old['paper']} {old['name']}"
        if len(before) != len(after):
            found.append(f"{name}: {len(before)} lines, {len(after)} from the results")
            continue
        found += [
            f"{name}: {a.strip()} | from the results: {b.strip()}"
            for a, b in zip(before, after, strict=True)
            if not same(a, b)
        ]
    return found


def same(before: str, after: str) -> bool:
    before, after = (COMMIT.sub("", line) for line in (before, after))
    numbers = list(zip(NUMBER.findall(before), NUMBER.findall(after), strict=False))
    if NUMBER.sub("#", before) != NUMBER.sub("#", after):
        return False
    return all(_close(a, b) for a, b in numbers)


def _close(before: str, after: str) -> bool:
    a, b = float(before), float(after)
    last_digit = 10.0 ** -max(len(word.partition(".")[2]) for word in (before, after))
    return abs(a - b) <= max(TOLERANCE * max(abs(a), abs(b)), 1.000001 * last_digit)


def write(file: Path, sweeps: Sweeps) -> None:
    file.write_text(written(file.read_text(encoding="utf-8"), sweeps), encoding="utf-8")
