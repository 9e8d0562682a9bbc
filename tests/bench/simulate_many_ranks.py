#!/usr/bin/env python3
"""What `strata simulate` takes for a point of 1,024, 16,384 and 131,072 ranks: seconds and memory of the process.

    python tests/bench/simulate_many_ranks.py [--strata build/cpu/strata] [--repetitions 3] [--figure FILE.png]

Two models by four modes on the cluster a800-ib with as many nodes, and with so much memory that everything fits. One
thread; the median of the repetitions. Prints a table in Markdown; the figure needs the analysis package.
"""

import argparse
import pathlib
import re
import statistics
import tempfile

from process_cost import checked_cost_of

FOLDER = pathlib.Path(__file__).parents[2]
RANKS = (1024, 16384, 131072)
MODELS = ("llama-30b", "megatron-145.6b")
# What each mode decides, and micro-batches of a sample a rank.
MODES = {
    "zero3": ({"strategy.name": "zero3"}, 1),
    "amsp": ({"strategy.name": "amsp"}, 1),
    "megatron in stages": (
        {
            "strategy.name": "megatron",
            "strategy.tensor": "8x1",
            "strategy.stages": 4,
            "strategy.schedule": "1f1b",
        },
        8,
    ),
    "1f1b": ({"strategy.name": "1f1b", "strategy.stages": 8}, 8),
}
EXPERIMENT = """
name = "ranks"
cluster = "cluster.toml"
[model]
name = "{model}"
[data]
format = "synthetic"
[resources]
nodes = {nodes}
ranks_per_node = 8
[train]
global_batch = {batch}
micro_batches = {micro_batches}
dtype = "bf16"
[strategy]
name = "single"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/cpu/strata")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--figure", type=pathlib.Path)
    words = parser.parse_args()
    rows = measured(words.strata, words.repetitions)
    print("| model | mode | ranks | seconds | MiB |\n|---|---|---|---|---|")
    for model, mode, ranks, seconds, mebibytes in rows:
        print(f"| {model} | {mode} | {ranks:,} | {seconds:.2f} | {mebibytes:.0f} |")
    if words.figure:
        draw(rows, words.figure)


def measured(strata, repetitions):
    """(model, mode, ranks, seconds, MiB) of every point."""
    return [
        (model, mode, ranks, *taken(strata, model, mode, ranks, repetitions))
        for model in MODELS
        for mode in MODES
        for ranks in RANKS
    ]


def taken(strata, model, mode, ranks, repetitions):
    """(seconds, MiB) of the process."""
    options, micro_batches = MODES[mode]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "cluster.toml").write_text(large_cluster(ranks // 8))
        (folder / "ranks.toml").write_text(
            EXPERIMENT.format(model=model, nodes=ranks // 8, batch=ranks * micro_batches, micro_batches=micro_batches)
        )
        command = [strata, "simulate", str(folder / "ranks.toml")]
        for key, value in options.items():
            command += ["--set", f"{key}={value}"]
        costs = [
            checked_cost_of([*command, "--results", folder / str(i)], environment={"OMP_NUM_THREADS": "1"})
            for i in range(repetitions)
        ]
    return tuple(statistics.median(getattr(cost, name) for cost in costs) for name in ("seconds", "mebibytes"))


def large_cluster(nodes):
    text = (FOLDER / "experiments/clusters/a800-ib.toml").read_text()
    text = re.sub(r"^nodes = \d+", f"nodes = {nodes}", text, count=1, flags=re.MULTILINE)
    return re.sub(r"^device_memory_bytes = [\d_]+", f"device_memory_bytes = {2**42}", text, count=1, flags=re.MULTILINE)


def draw(rows, file):
    from matplotlib import pyplot
    from strata_analysis.figures import style

    with style.applied():
        figure, panels = pyplot.subplots(1, 2, figsize=(style.PAGE_INCHES, style.HEIGHT_INCHES))
        for axes, column, what in zip(panels, (3, 4), ("seconds", "memory (MiB)"), strict=True):
            for model, line in zip(MODELS, ("-", "--"), strict=True):
                for mode in MODES:
                    points = [row for row in rows if row[:2] == (model, mode)]
                    colour = style.STRATEGY_COLOURS[mode.split()[0]]
                    axes.plot(
                        [row[2] for row in points],
                        [row[column] for row in points],
                        line,
                        marker="o",
                        color=colour,
                        label=f"{mode}, {model}",
                    )
            axes.set_xscale("log", base=2)
            axes.set_xticks(RANKS, [f"{ranks:,}" for ranks in RANKS])
            axes.set_xlabel("ranks")
            axes.set_ylabel(what)
            axes.set_ylim(bottom=0)
        panels[0].set_title("One point simulated, one thread")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
        figure.savefig(file)


if __name__ == "__main__":
    main()
