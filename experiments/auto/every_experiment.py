"""`auto` on everything that the other experiments run: what it predicts beside the best mode that plans alone.

    .venv/bin/python experiments/auto/every_experiment.py experiments/auto/every_experiment.csv [FILE.toml ...]

Takes the points of the files (default: all of experiments/ on described clusters), each model, batch and machine once,
whatever its strategy. Of each it asks `strata plan` for auto's plan with the other modes' plans as candidates, which
also tells what it finds without them (`--asks full`), and for what it finds without each dimension in turn (`--asks
ablation`). Every number is predicted, by one simulator for all. What the file has rows of is not asked again, so it can
be interrupted. CSV, one row a point and search:

file, point     the first experiment that has it
asks            full | seedless | without <dimension>; seedless: without candidates
seconds         of auto's step; empty: words say what it refuses
best, best_seconds   the fastest other mode that fits, by the same prediction, and its step; of `full` alone
gap             to the bound that auto tells; of `full`
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

FOLDER = Path(__file__).resolve().parents[1]
DIMENSIONS = ("stages", "tensor", "states", "slices", "recompute", "sub_batches", "overlap", "placement")
ABLATION = tuple(f"without {name}" for name in DIMENSIONS)
ASKS = {"full": {}, "ablation": {"ablation": True}}  # options of auto
ROWS = {"full": ("full",), "ablation": ("full", *ABLATION)}  # that an answer has in any case
COLUMNS = (
    "file", "point", "ranks", "cluster", "model", "batch", "asks", "seconds", "best", "best_seconds", "gap", "words",
)  # fmt: skip
# What a plan depends on: the machine, the model and the batch. Schedules, recomputation and switches of overlap
# that a file sets for its modes are auto's to choose.
KEPT = ("cluster", "model.", "resources.", "train.")
LEFT_OUT = ("train.seed", "train.steps", "train.epochs", "train.learning_rate", "train.decay", "train.recompute")
COST = re.compile(r"^(?P<mode>[^:]+): (?P<seconds>[0-9][0-9.e+-]*) s, ")
GAP = re.compile(r"gap (?P<gap>[0-9.e+-]+)")
WITHOUT_CANDIDATES = re.compile(
    r"without other modes' plans as candidates: (?P<answer>(?P<seconds>[0-9][0-9.e+-]*) s|.+)$"
)
WITHOUT_DIMENSION = re.compile(
    r"^(?P<name>[a-z_]+): (?:(?P<seconds>[0-9][0-9.e+-]*) s, [0-9.]+ GiB, [0-9.e+-]+ times as long: )?(?P<words>.+)$",
    re.DOTALL,
)
NOTHING_FITS = "nothing fits into a device memory"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="CSV; rows are added")
    parser.add_argument("files", nargs="*", type=Path, help="experiments (default: all)")
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--asks", nargs="*", choices=list(ASKS), default=list(ASKS))
    parser.add_argument("--one-batch", action="store_true", help="of points that differ in the batch, the middle one")
    parser.add_argument("--jobs", type=int, default=1, help="plans made at a time, each on all cores")
    parser.add_argument("--seconds", type=float, default=300.0, help="that one search may take")
    words = parser.parse_args()
    files = words.files or sorted(FOLDER.rglob("*.toml"))
    points = points_of([file for file in files if "clusters" not in file.parts], words.strata)
    if words.one_batch:
        points = middle_batches(points)
    words.output.parent.mkdir(parents=True, exist_ok=True)
    known = set()
    if words.output.exists():
        with words.output.open(newline="") as file:
            known = {(row["file"], row["point"], row["asks"]) for row in csv.DictReader(file)}
    with words.output.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not known:
            writer.writeheader()
        lock = Lock()

        def ask_and_write(point: dict, asks: str) -> None:
            rows = ask(point, asks, words.strata, words.seconds)
            with lock:
                writer.writerows(row for row in rows if (row["file"], str(row["point"]), row["asks"]) not in known)
                file.flush()

        with ThreadPoolExecutor(words.jobs) as pool:
            asked = [
                pool.submit(ask_and_write, point, asks)
                for asks in words.asks
                for point in points
                if any((point["file"], str(point["point"]), row) not in known for row in ROWS[asks])
            ]
            for each in asked:
                each.result()
    return 0


def points_of(files: list[Path], strata: str) -> list[dict]:
    """Each once, on described clusters alone: of others nobody knows the costs before they are measured."""
    points: dict[str, dict] = {}
    for file in files:
        ended = subprocess.run([strata, "expand", str(file), "--json"], capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            continue  # A description of something else.
        for point in json.loads(ended.stdout)["points"]:
            keys = {
                key: value
                for key, value in point["keys"].items()
                if key.startswith(KEPT) and not key.startswith(LEFT_OUT)
            }
            if keys.get("cluster", "this") == "this" or keys.get("train.global_batch") == "planner":
                continue
            if keys["cluster"].endswith(".toml"):
                keys["cluster"] = str(file.resolve().parent / keys["cluster"])
            identity = json.dumps(keys, sort_keys=True)
            name = str(file.resolve().relative_to(FOLDER))
            points.setdefault(identity, {"file": name, "point": point["index"], "ranks": point["ranks"], "keys": keys})
    return with_open_micro_batches(list(points.values()))


def with_open_micro_batches(points: list[dict]) -> list[dict]:
    """Without those whose number of micro-batches a file fixes for its modes where another one differs in nothing but
    that it leaves the number open: all numbers are auto's and the other modes' to choose there."""

    def others(point: dict) -> str:
        return text_without(point, "train.micro_batches")

    def is_open(point: dict) -> bool:
        return point["keys"].get("train.micro_batches", 0) == 0

    chosen = {others(point) for point in points if is_open(point)}
    return [point for point in points if is_open(point) or others(point) not in chosen]


def middle_batches(points: list[dict]) -> list[dict]:
    """One of those that differ in nothing but the batch and in how many micro-batches it is cut."""
    alike: dict[str, list[dict]] = {}
    for point in points:
        others = text_without(point, "train.global_batch", "train.global_batch_tokens", "train.micro_batches")
        alike.setdefault(others, []).append(point)
    return [group[len(group) // 2] for group in alike.values()]


def text_without(point: dict, *keys: str) -> str:
    """Of its other keys: equal of points that differ in these alone."""
    return json.dumps({key: value for key, value in point["keys"].items() if key not in keys}, sort_keys=True)


def ask(point: dict, asks: str, strata: str, most_seconds: float) -> list[dict]:
    """Its rows; also that of `seedless`, as far as the answer tells it."""

    def row(name: str, **found: object) -> dict:
        return dict.fromkeys(COLUMNS, "") | {
            "file": point["file"],
            "point": point["point"],
            "ranks": point["ranks"],
            "cluster": point["keys"]["cluster"],
            "model": point["keys"].get("model.name", ""),
            "batch": point["keys"].get("train.global_batch", ""),
            "asks": name,
            **found,
        }

    seconds = len(ROWS[asks]) * most_seconds
    with tempfile.TemporaryDirectory() as folder:
        try:
            strategy = {"name": "auto", **ASKS[asks]}
            ended = answer_of(point, strategy, strata, Path(folder), seconds)
        except subprocess.TimeoutExpired:
            return [row(name, words=f"no plan within {seconds:g} s") for name in ROWS[asks]]
    if ended.returncode != 0:
        refusal = " ".join(ended.stderr.split())[:400] or f"strata ended with {ended.returncode}"
        # What does not fit with all dimensions does not without one, nor without candidates.
        seedless = ("seedless",) if NOTHING_FITS in ended.stderr else ()
        return [row(name, words=refusal) for name in (*ROWS[asks], *seedless)]
    why = tomllib.loads(ended.stdout)["why"]
    full = row("full", seconds=why["predicted_seconds"], words=why["binding"].split(";")[0])
    if gap := GAP.search(why["binding"]):
        full["gap"] = gap["gap"]
    if best := best_mode(why):
        full |= {"best": best[0], "best_seconds": best[1]}
    rows = [full]
    if found := WITHOUT_CANDIDATES.search(why["binding"]):
        words = "" if found["seconds"] else found["answer"]
        rows.append(row("seedless", seconds=found["seconds"] or "", words=words))
    for line in why.get("ablation", []):
        found = WITHOUT_DIMENSION.match(line)
        rows.append(row(f"without {found['name']}", seconds=found["seconds"] or "", words=found["words"][:400]))
    return rows


def experiment_text(point: dict, strategy: dict) -> str:
    """`point` by another strategy, as an experiment of its own."""
    lines = [f"{key} = {toml(value)}" for key, value in point["keys"].items()]
    lines += ['name = "auto"', 'data.format = "synthetic"']
    lines += [f"strategy.{key} = {toml(value)}" for key, value in strategy.items()]
    return "\n".join(sorted(lines)) + "\n"


def answer_of(
    point: dict, strategy: dict, strata: str, folder: Path, most_seconds: float | None = None
) -> subprocess.CompletedProcess:
    """What `strata plan` says; its file is written into `folder`."""
    file = folder / "auto.toml"
    file.write_text(experiment_text(point, strategy))
    return subprocess.run(
        [strata, "plan", str(file)], capture_output=True, text=True, check=False, timeout=most_seconds
    )


def best_mode(why: dict) -> tuple[str, float] | None:
    """The fastest of the other modes that `why` of a plan tells of, and its step; None where none has one that fits."""
    costs = [(found["mode"], float(found["seconds"])) for line in why.get("singles", []) if (found := COST.match(line))]
    return min(costs, key=lambda cost: cost[1], default=None)


def toml(value: object) -> str:
    """JSON's values are TOML's, but for null, which no key has."""
    return json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
