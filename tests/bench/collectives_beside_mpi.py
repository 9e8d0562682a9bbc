#!/usr/bin/env python3
"""strata's all-reduce in shared memory beside MPI's own, by size, for two and four ranks of this machine.

    python tests/bench/collectives_beside_mpi.py [--bench build/cpu/tests/bench_collectives] [--figure FILE.png]

Of bench_collectives, which takes both in turn in one run, fp32. Prints a table in Markdown; the figure needs the
analysis package. Below both lies, for sizes that caches do not hold, what reading and writing as many bytes takes.
"""

import argparse
import json
import pathlib
import subprocess

RANKS = (2, 4)
LEAST_STREAMED_BYTES = 1 << 20  # below, a copy stays in caches, and memory bounds nothing


def measured(bench, mpiexec, ranks):
    """Rows of fp32 in the order of their sizes, as bench_collectives writes them."""
    words = [mpiexec, "-n", str(ranks), bench, "--transport", "shm", "--json", "yes"]
    lines = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [row for row in map(json.loads, lines) if row["dtype"] == "f32"]


def in_words(num_bytes):
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"


def draw(rows, file):
    from matplotlib import pyplot
    from strata_analysis.figures import style

    lines = {
        "seconds": ("strata, shared memory", style.STRATEGY_COLOURS["ddp"], "-", "o"),
        "mpi_seconds": ("MPI_Allreduce", style.STRATEGY_COLOURS["zero3"], "-", "s"),
        "bound_seconds": ("what memory allows", style.OTHER_COLOUR, ":", None),
    }
    with style.applied():
        figure, panels = pyplot.subplots(
            1, len(RANKS), figsize=(style.PAGE_INCHES, style.HEIGHT_INCHES), sharey=True, squeeze=False
        )
        for axes, ranks in zip(panels[0], RANKS, strict=True):
            of_ranks = [row for row in rows if row["ranks"] == ranks]
            sizes = [row["bytes"] for row in of_ranks]
            for key, (label, colour, line, marker) in lines.items():
                least = LEAST_STREAMED_BYTES if key == "bound_seconds" else 0
                points = [(row["bytes"], row[key] * 1e6) for row in of_ranks if row["bytes"] >= least]
                axes.plot(*zip(*points, strict=True), line, marker=marker, color=colour, label=label)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(sizes[::2], [in_words(size) for size in sizes[::2]])
            axes.set_xlabel("all-reduce of")
            axes.set_title(f"{ranks} ranks")
        panels[0][0].set_ylabel("time (µs)")
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside right center")
        figure.savefig(file)
        pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/cpu/tests/bench_collectives")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--figure", type=pathlib.Path)
    words = parser.parse_args()
    rows = [row for ranks in RANKS for row in measured(words.bench, words.mpiexec, ranks)]
    print("| ranks | size | strata µs | MPI µs | memory µs | MPI / strata |\n|---|---|---|---|---|---|")
    for row in rows:
        ours, mpi, bound = (row[key] * 1e6 for key in ("seconds", "mpi_seconds", "bound_seconds"))
        print(
            f"| {row['ranks']} | {in_words(row['bytes'])} | {ours:.1f} | {mpi:.1f} | {bound:.1f} | {mpi / ours:.2f} |"
        )
    if words.figure:
        draw(rows, words.figure)


if __name__ == "__main__":
    main()
