"""CPU seconds and memory of `collect`, `table`, `compare` and `report` on a sweep of many attempts with many steps.

The attempts are one that the recorder wrote, stretched: its steps are repeated with other times, and its attributes
name other points. Each verb runs by itself, on all cores; memory is that of the largest of its processes.

Usage: bench_analysis.py FOLDER [--points 100] [--runs 10] [--steps 1000] [--verbs start collect table compare report]
FOLDER is made once and used again; build/cpu/tests/write_sample_results has to be there.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
from process_cost import Cost, cost_of

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("STRATA_BUILD", ROOT / "build" / "cpu"))
MODELS = ("gpt2-small", "gpt2-medium")
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "megatron")
RANKS = tuple(2**exponent for exponent in range(10))
FACTS_OF_RANKS = ("host_names", "device_names")
VERBS = {
    "start": ["--help"],
    "collect": ["collect"],
    "table": ["table"],
    "compare": ["compare", "--baseline", "ddp"],
    "report": ["report"],
}


def write_sweep(folder: Path, num_points: int, num_runs: int, num_steps: int) -> None:
    """Points are models by strategies by ranks by batches; each ran `num_runs` times, in blocks of one job."""
    sample = folder.with_name(f"{folder.name}.sample")
    shutil.rmtree(sample, ignore_errors=True)  # of a call that was stopped
    subprocess.run([BUILD / "tests" / "write_sample_results", sample], check=True)
    template = sample / "sample" / f"{0xABC000:012x}" / "1.h5"
    places = list(itertools.product(MODELS, STRATEGIES, RANKS))
    for number, run in itertools.product(range(num_points), range(num_runs)):
        batch, place = divmod(number, len(places))
        model, strategy, ranks = places[place]
        point = f"{number:012x}"
        (folder / point).mkdir(parents=True, exist_ok=True)
        file_name = folder / point / f"{run + 1}.h5"
        shutil.copy(template, file_name)
        samples = 4096 * (1 + batch)
        with h5py.File(file_name, "r+") as file:
            keys = {
                "model.name": f'"{model}"',
                "resources.ranks_per_node": ranks,
                "strategy.name": f'"{strategy}"',
                "train.global_batch": samples,
            }
            facts = {
                "point_id": point,
                "attempt": run + 1,
                "block": run,
                "block_job": "1",
                "model_name": model,
                "strategy_name": strategy,
                "num_ranks": ranks,
                "ranks_per_node": ranks,
                "num_samples_per_step": samples,
                "point_keys": "".join(f"{name} = {value}\n" for name, value in keys.items()),
            }
            for name, value in facts.items():
                file.attrs[name] = value
            for name in FACTS_OF_RANKS:
                file.attrs.create(name, [file.attrs[name][0]] * ranks, dtype=h5py.string_dtype())
            _stretch(file["steps"], num_steps, np.random.default_rng([number, run]))
            file["summary/num_measured_steps"][()] = num_steps - file["summary/num_warmup_steps"][()]
    shutil.rmtree(sample)


def _stretch(steps: h5py.Group, num_steps: int, random: np.random.Generator) -> None:
    for name, column in steps.items():
        old = column[()]
        column.resize((num_steps,))
        if name in ("step", "unix_seconds"):
            column[()] = old[0] + np.arange(num_steps, dtype=old.dtype)
        elif old.dtype.kind == "f":
            column[()] = np.resize(old[3:], num_steps) * random.uniform(0.9, 1.1, num_steps)
        else:
            column[()] = np.concatenate([old[:3], np.full(num_steps - 3, old[-1])])


def cost_of_verb(verb: str, folder: Path) -> Cost:
    name, *options = VERBS[verb]
    words = [name] if verb == "start" else [name, folder, *options]
    return cost_of([sys.executable, "-m", "strata_analysis", *words])


def line_of(verb: str, cost: Cost) -> str:
    return (
        f"{VERBS[verb][0]:8s} exit code {cost.exit_code}: {cost.user_seconds:6.2f} s user, "
        f"{cost.system_seconds:6.2f} s system, {cost.seconds:6.2f} s wall, {cost.mebibytes:6.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    words = parser.parse_args()
    if not words.folder.exists():
        write_sweep(words.folder, words.points, words.runs, words.steps)
    for verb in words.verbs:
        print(line_of(verb, cost_of_verb(verb, words.folder)), flush=True)


if __name__ == "__main__":
    main()
