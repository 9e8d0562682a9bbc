#!/usr/bin/env python3
"""One table of the runs on a GPU: what a step took, of what it is a share, and beside compiled PyTorch's.

table_of_runs.py <results> [<pytorch log>] --output FILE.csv

Reads the rows that `strata run` writes as it goes (<results>/*/*/1.jsonl) and bench_pytorch.py's lines. Only the
standard library: it runs where strata's packages are not. A number that is not known is an empty cell.
"""

import argparse
import csv
import json
import math
import re
import statistics
import sys
from pathlib import Path

COLUMNS = [
    "model",
    "batch",
    "micro_batches",
    "ended",
    "measured_steps",
    "step_seconds",
    "wall_seconds_a_step",
    "input_seconds",
    "tflops",
    "tflops_by_the_clock",
    "percent_of_nameplate",
    "percent_of_sustained",
    "percent_of_peak",
    "pytorch_step_seconds",
    "pytorch_over_strata",
    "sm_clock_megahertz",
    "power_watts",
    "clock_event_reasons",
]
# bench_pytorch.py's names of what the experiments of experiments/gpu train.
NAMES = {"gpu_gpt2_small": "gpt2-small", "gpu_llama_7b_8_layers": "llama-7b-8-layers", "gpu_vgg13": "vgg13"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("pytorch", type=Path, nargs="?")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    pytorch = steps_of_pytorch(arguments.pytorch)
    rows = [row_of(path, pytorch) for path in arguments.results.glob("*/*/*.jsonl")]
    rows.sort(key=lambda row: (row["model"], row["batch"], row["micro_batches"]))
    for stream in (arguments.output.open("w", newline="", encoding="utf-8"), sys.stdout):
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0 if rows else 1


def steps_of_pytorch(log):
    """Name -> seconds a step; nothing where it did not run."""
    if log is None or not log.exists():
        return {}
    return {m[1]: float(m[2]) for m in re.finditer(r"^(\S+) (\S+) s a step", log.read_text(encoding="utf-8"), re.M)}


def row_of(path, pytorch):
    """A row of COLUMNS from the lines of one attempt."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    facts = next(line for line in lines if line["kind"] == "attempt")
    end = next((line for line in lines if line["kind"] == "end"), {})
    steps = [line for line in lines if line["kind"] == "step" and line["phase"] == "measured"]
    name = NAMES.get(facts["experiment_name"], facts["model_name"])
    row = {
        "model": name,
        "batch": facts["num_sequences_per_step"],
        "micro_batches": int(re.search(r"\bmicro_batches = (\d+)", facts["plan_text"])[1]),
        "ended": end.get("status", "killed"),
    }
    if not steps:
        return row
    seconds = median(steps, "step_seconds_max")
    flops = facts["num_samples_per_step"] * facts["flops_per_sample"]
    rate = flops / seconds
    numbers = {
        "step_seconds": seconds,
        "input_seconds": median(steps, "input_seconds"),
        "tflops": rate * 1e-12,
        "sm_clock_megahertz": 1e-6 * median(steps, "sm_clock_hertz"),
        "power_watts": median(steps, "power_watts"),
    }
    if len(steps) > 1:
        wall = (steps[-1]["unix_seconds"] - steps[0]["unix_seconds"]) / (len(steps) - 1)
        # With what passes between steps.
        numbers |= {"wall_seconds_a_step": wall, "tflops_by_the_clock": 1e-12 * flops / wall}
    for of in ("nameplate", "sustained", "peak"):
        numbers[f"percent_of_{of}"] = 100 * rate / (number(facts[f"{of}_flops_per_second"]) * facts["num_ranks"])
    if name in pytorch:
        numbers |= {"pytorch_step_seconds": pytorch[name], "pytorch_over_strata": pytorch[name] / seconds}
    row["measured_steps"] = len(steps)
    # Bits of NVML that were set in any step.
    reasons = 0
    for step in steps:
        value = number(step["clock_event_reasons"])
        reasons |= 0 if math.isnan(value) else int(value)
    row["clock_event_reasons"] = hex(reasons)
    return row | {key: f"{value:.6g}" for key, value in numbers.items() if not math.isnan(value)}


def number(value):
    return math.nan if value is None else float(value)


def median(steps, name):
    return statistics.median(number(step[name]) for step in steps)


if __name__ == "__main__":
    sys.exit(main())
