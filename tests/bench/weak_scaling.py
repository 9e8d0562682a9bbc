#!/usr/bin/env python3
"""A step of two ranks with `ddp` against one of a rank alone, a thread and equally many samples a rank: weak scaling.

    python tests/bench/weak_scaling.py [--strata build/cpu/strata] [--rounds 3] [--steps 2] [--only gpt2-small/fp32,…]

In each round in turn: one rank; two such runs at once that know nothing of each other; two ranks together. Efficiency
is the first's step over the third's, what the machine allows the first's over the second's, which share its memory and
its clock but nothing else; both are medians over rounds. Communication is of the two ranks' median step: under way,
and exposed, which is with no kernel beside it.
"""

import argparse
import statistics

import recorded_run

# Samples of a rank's step.
BATCHES = {"gpt2-small": 2, "vgg13": 8}
DTYPES = ("fp32", "bf16")


def measured(strata, mpiexec, model, dtype, rounds, steps):
    """Of one case: seconds a step by round, and communication by its share of the step."""
    batch = BATCHES[model]
    alone = recorded_run.experiment(model, batch, steps + 1, dtype=dtype)
    together = recorded_run.experiment(model, 2 * batch, steps + 1, ranks=2, dtype=dtype)
    case = {
        "model": model,
        "dtype": dtype,
        "batch": batch,
        "alone_seconds": [],
        "beside_seconds": [],
        "together_seconds": [],
        "communication_share": [],
        "exposed_share": [],
    }
    for _ in range(rounds):
        case["alone_seconds"].append(recorded_run.run(strata, mpiexec, alone).median_step_seconds)
        beside = [recorded_run.started(strata, mpiexec, alone) for _ in range(2)]
        case["beside_seconds"].append(max(recorded_run.finished(one).median_step_seconds for one in beside))
        summary = recorded_run.run(strata, mpiexec, together, ranks=2).summary
        seconds = summary["median_step_seconds"]
        case["together_seconds"].append(seconds)
        case["communication_share"].append(summary["median_communication_seconds"] / seconds)
        case["exposed_share"].append(summary["median_exposed_communication_seconds"] / seconds)
    return case


def efficiency(case, whose="together"):
    """`whose`: together, or beside for what the machine allows."""
    return statistics.median(a / b for a, b in zip(case["alone_seconds"], case[f"{whose}_seconds"], strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="measured steps of a run")
    parser.add_argument("--only", default="", help="MODEL/DTYPE,…: these cases alone")
    words = parser.parse_args()
    print(f"{'model':12} dtype  batch/rank  alone s  together s  efficiency  machine's  communication  exposed")
    for model in BATCHES:
        for dtype in DTYPES:
            if words.only and f"{model}/{dtype}" not in words.only.split(","):
                continue
            case = measured(words.strata, words.mpiexec, model, dtype, words.rounds, words.steps)
            alone, together, communication, exposed = (
                statistics.median(case[name])
                for name in ("alone_seconds", "together_seconds", "communication_share", "exposed_share")
            )
            print(
                f"{model:12} {dtype:5} {case['batch']:11} {alone:8.3f} {together:11.3f} {efficiency(case):11.3f}"
                f" {efficiency(case, 'beside'):10.3f} {communication:14.1%} {exposed:8.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
