"""How many strategies a second each search of figure 8 looks at, for the seconds of the figure's axis.

    .venv/bin/python experiments/autoddl/figure_8_rates.py analysis/strata_analysis/layout_searches.toml

A plan has no seconds in it, as it is the same wherever it is made. A search takes the same time for each strategy, so
the number of strategies, which a plan has, gives the seconds. Measured is the processor time of `strata plan` on the
most nodes: of a search what more strategies cost, as what comes before it, the table of costs that all searches read,
is the same for few and for many; of exhaustive search, which has one size, what it costs more than the exact one.
Medians.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import tomllib
from pathlib import Path

EXPERIMENT = "experiments/autoddl/figure_8.toml"
NODES = 4096
FEW, MANY = 1, 3  # millions of proposals, or thousands of beginnings
LOOKED_AT = re.compile(r"(\d+) strategies looked at")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="TOML")
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--repetitions", type=int, default=15)
    words = parser.parse_args()
    lines = [
        "# Strategies a second of one core, by search of AutoDDL's figure 8; written by",
        "# experiments/autoddl/figure_8_rates.py, which says what is measured.",
        "",
        f'processor = "{processor()}"',
        f'strata = "{commit(words.strata)}"',
        f"nodes = {NODES}",
        "",
        "[strategies_per_second]",
    ]
    for search in ("exhaustive", "random", "metropolis_hastings", "coordinate_descent"):
        rate = rate_of(search, words.strata, words.repetitions)
        lines.append(f"{search} = {rate:.3g}")
        print(lines[-1], flush=True)
    words.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rate_of(search: str, strata: str, repetitions: int) -> float:
    if search == "exhaustive":
        few, many = (planned(strata, repetitions, name, 1) for name in ("exact", search))
    else:
        few, many = (planned(strata, repetitions, search, size) for size in (FEW, MANY))
    return (many[1] - few[1]) / (many[0] - few[0])


def planned(strata: str, repetitions: int, search: str, size: int) -> tuple[float, int]:
    """Median seconds of the processor that planning takes, and the strategies that are looked at."""
    sizes = {"proposals": size * 1_000_000, "restarts": size * 1_000, "trace": "false"}
    command = [strata, "plan", EXPERIMENT, "--point", str(point_of(search))]
    for option, value in sizes.items():
        command += ["--set", f"strategy.{option}={value}"]
    seconds = []
    for _ in range(repetitions):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        plan = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    looked_at = LOOKED_AT.search(plan)
    return statistics.median(seconds), int(looked_at[1]) if looked_at else 0


def point_of(search: str) -> int:
    """The first of the search on the most nodes."""
    sweep = tomllib.loads(Path(EXPERIMENT).read_text(encoding="utf-8"))["sweep"]
    (searches,) = (lists["strategy.search"] for lists in sweep["zip"])
    return sweep["product"]["resources.nodes"].index(NODES) * len(searches) + searches.index(search)


def processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"model name\s*: (.*)", text)
    return found[1] if found else "unknown"


def commit(strata: str) -> str:
    return subprocess.run([strata, "--version"], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
