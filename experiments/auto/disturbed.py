"""How well a plan of `auto` bears a machine that is not what its description says.

    .venv/bin/python experiments/auto/disturbed.py experiments/auto/disturbed.csv experiments/oases/figure_7.toml ...

Plans each point of the files once, for the cluster as described, by auto and by the mode that is the best one beside
it; then simulates both plans on clusters whose compute, links inside nodes and links between nodes are each 20 % slower
or faster, all eight of these, and prints the share of them in which auto's plan stays ahead. Every number is predicted.
CSV, one row a point and cluster; `auto_seconds` and `best_seconds` are of a step.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from every_experiment import FOLDER, answer_of, best_mode, experiment_text, points_of

PARTS = ("compute", "intra_node", "inter_node")
FACTORS = (0.8, 1.2)
# Where a description has numbers of each part: per second, a line each. Pairs are inside a node.
COMPUTE = re.compile(r"^(f32|bf16|f16|tf32|memory_bandwidth_bytes_per_second) = (?P<number>[0-9_.e+]+)")
INTRA_NODE = re.compile(r"^(intra_node|link) = ")
INTER_NODE = re.compile(r"^inter_node = ")
BANDWIDTH = re.compile(r"(?P<key>bandwidth_bytes_per_second = )(?P<number>[0-9_.e+]+)")
SIMULATED = re.compile(r"simulated (?P<seconds>[0-9.e+-]+) (?P<unit>s|ms|us) ")
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="CSV")
    parser.add_argument("files", nargs="+", type=Path, help="experiments on described clusters")
    parser.add_argument("--strata", default="build/cpu/strata")
    words = parser.parse_args()
    words.output.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with words.output.open("w", newline="") as file:
        columns = ("file", "point", "ranks", "cluster", *PARTS, "auto_seconds", "best", "best_seconds")
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for point in points_of(words.files, words.strata):
            for row in rows_of(point, words.strata):
                rows.append(row)
                writer.writerow(row)
                file.flush()
    if not rows:
        print("no point has a plan of auto and of another mode")
        return 1
    ratios = [row["best_seconds"] / row["auto_seconds"] for row in rows]
    ahead = sum(ratio >= 1.0 for ratio in ratios)
    print(
        f"auto's plan is ahead, or as fast, in {ahead} of {len(ratios)} cases ({100 * ahead / len(ratios):.0f} %); "
        f"the other's step over its: least {min(ratios):.3f}, mean {sum(ratios) / len(ratios):.3f}, "
        f"most {max(ratios):.3f}"
    )
    return 0


def rows_of(point: dict, strata: str) -> list[dict]:
    """By cluster; none where auto or every other mode has no plan."""
    described = FOLDER / "clusters" / f"{point['keys']['cluster']}.toml"
    if not described.exists():
        described = Path(point["keys"]["cluster"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = answer_of(point, {"name": "auto"}, strata, folder)
        found = best_mode(tomllib.loads(asked.stdout)["why"]) if asked.returncode == 0 else None
        if found is None:
            return []
        best = found[0]
        plans = {"auto": asked.stdout, best: answer_of(point, {"name": best}, strata, folder).stdout}
        for mode, text in plans.items():
            (folder / f"{mode}.plan").write_text(text)
        rows = []
        for factors in itertools.product(FACTORS, repeat=len(PARTS)):
            (folder / "disturbed.toml").write_text(disturbed(described.read_text(), *factors))
            seconds = {}
            for mode in plans:
                changed = {**point, "keys": {**point["keys"], "cluster": "disturbed.toml"}}
                (folder / "run.toml").write_text(experiment_text(changed, {"name": mode}))
                ended = subprocess.run(
                    [strata, "simulate", "run.toml", "--plan", f"{mode}.plan", "--results", "results"],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                simulated = SIMULATED.search(ended.stdout)
                seconds[mode] = float(simulated["seconds"]) * UNITS[simulated["unit"]]
            rows.append(
                {key: point[key] for key in ("file", "point", "ranks")}
                | {"cluster": point["keys"]["cluster"], **dict(zip(PARTS, factors, strict=True))}
                | {"auto_seconds": seconds["auto"], "best": best, "best_seconds": seconds[best]}
            )
        return rows


def disturbed(text: str, compute: float, intra_node: float, inter_node: float) -> str:
    """The description `text` of a cluster with its rates multiplied."""
    lines = []
    for line in text.splitlines():
        if found := COMPUTE.match(line):
            line = f"{found[1]} = {_times(found['number'], compute)}"
        elif INTRA_NODE.match(line):
            line = _with_bandwidth(line, intra_node)
        elif INTER_NODE.match(line):
            line = _with_bandwidth(line, inter_node)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _with_bandwidth(line: str, factor: float) -> str:
    return BANDWIDTH.sub(lambda found: found["key"] + _times(found["number"], factor), line)


def _times(number: str, factor: float) -> str:
    return repr(float(number.replace("_", "")) * factor)


if __name__ == "__main__":
    sys.exit(main())
