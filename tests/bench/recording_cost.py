#!/usr/bin/env python3
"""What recording costs a step of four ranks: rows gathered on rank 0 become JSONL and HDF5 while all ranks train.

    python tests/bench/recording_cost.py [--strata build/cpu/strata] [--rounds 3] [--steps 500]

A small GPT whose step takes about ten milliseconds on two cores. Recording is on threads of its own beside training, so
what it costs is what it takes of the cores: its share is the processor time of rank 0's recording, measured in the run
(`recording_cpu_seconds`), over the time of all steps on the cores that the ranks have. Not in it: opening the files
before the first step, and the fsync and renaming behind the last.
"""

import argparse
import os
import statistics

import recorded_run

RANKS = 4
MODEL, BATCH = "gpt-micro", 4


def measured(strata, mpiexec, rounds, steps):
    """By round: seconds of a core a step, mean seconds of a step."""
    text = recorded_run.experiment(MODEL, BATCH, steps, ranks=RANKS, warmup_steps=20)
    case = {"model": MODEL, "ranks": RANKS, "cores": min(RANKS, len(os.sched_getaffinity(0)))}
    runs = [recorded_run.run(strata, mpiexec, text, RANKS) for _ in range(rounds)]
    case["recording_seconds"] = [run.summary["recording_cpu_seconds"] / len(run.steps) for run in runs]
    case["step_seconds"] = [statistics.mean(step["step_seconds_max"] for step in run.steps) for run in runs]
    return case


def share(case):
    """Of the time of the ranks' cores, median over rounds."""
    return statistics.median(
        recording / step / case["cores"]
        for recording, step in zip(case["recording_seconds"], case["step_seconds"], strict=True)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    words = parser.parse_args()
    case = measured(words.strata, words.mpiexec, words.rounds, words.steps)
    for recording, step in zip(case["recording_seconds"], case["step_seconds"], strict=True):
        print(f"step {step * 1e3:.2f} ms on {case['cores']} cores, recording {recording * 1e6:.1f} us of a core")
    print(f"share of the cores, median: {share(case):.3%}")


if __name__ == "__main__":
    main()
