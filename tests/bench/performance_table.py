#!/usr/bin/env python3
"""The README's performance table: what is compared with PyTorch, MPI and this project's aims, measured by one command.

    PYTHON=.venv/bin/python
    $PYTHON tests/bench/performance_table.py --pytorch python3 --write README.md    # half an hour on a quiet machine
    $PYTHON tests/bench/performance_table.py --only scaling recording               # these again, the others as kept
    $PYTHON tests/bench/performance_table.py --only --write README.md               # nothing is measured

Needs `cmake --build build/cpu --target strata bench_collectives write_sample_results` and, for the first section, a
Python with PyTorch. What a section measured is kept in --measured as soon as it is there, with the machine, versions
and other work that it was measured with; one that fails says why and keeps what it had. --write replaces what stands
between `<!-- performance -->` and `<!-- end -->`; --gallery draws the figures of what was measured.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import collectives_beside_mpi
import recorded_run
import simulate_many_ranks
from performance_sections import ROOT, SECTIONS

BLOCK = re.compile(r"(<!-- performance -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = ("", "strata", "beside it", "ratio", "limit, and how much of it", "aim")
BUSY_CORES = 0.1  # with other work: beside it times are no longer the machine's
# Of library_versions in results: their names here.
LIBRARIES = {"compiler": "", "onednn": "oneDNN", "mpi": "", "HDF5": "HDF5"}


def facts_now(words):
    """What a section is measured with."""
    busy_cores = cores_with_other_work()
    run = recorded_run.run(words.strata, words.mpiexec, recorded_run.experiment("gpt-nano", 1, 2))
    versions = dict(entry.split("=", 1) for entry in run.facts["library_versions"])
    libraries = [f"{name} {' '.join(versions[key].split())}".strip() for key, name in LIBRARIES.items()]
    return {
        "date": datetime.date.today().isoformat(),
        "commit": run.facts["git_commit"],
        "busy_cores": busy_cores,
        "processor": f"{run.facts['device_names'][0]} ({processor_model()})",
        "cores": len(os.sched_getaffinity(0)),
        "instruction_set": versions["instruction_set"],
        "libraries": [library.replace("MPICH Version:", "MPICH") for library in libraries],
    }


def cores_with_other_work(seconds=2.0):
    """How many do not idle, or are taken away by a hypervisor, while this process sleeps."""

    def spent():
        ticks = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
        idle = ticks[3] + ticks[4]  # with nothing to do, and waiting for a disk
        return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")

    before = spent()
    time.sleep(seconds)
    return (spent() - before) / seconds


def processor_model():
    """Its name may say no more than the maker's."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    found = dict(re.split(r"\s*:\s*", line, maxsplit=1) for line in lines if ":" in line)
    return f"family {found.get('cpu family', '?')} model {found.get('model', '?')}"


def table_of(kept):
    """@param kept by section what was measured, and with what. Sections that were not measured have no rows."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for name, section in SECTIONS.items():
        if name not in kept:
            continue
        for row in section.rows(kept[name]["measured"]):
            aim = row.aim if row.met else f"{row.aim} (missed)"
            lines.append(f"| {row.what} | {row.ours} | {row.against} | {row.ratio} | {row.limit} | {aim} |")
    return "\n".join(lines)


def caption_of(kept):
    """One sentence for each set of facts that sections were measured with."""
    facts = [kept[name]["facts"] for name in SECTIONS if name in kept]

    def words_of(key):
        return " and ".join(dict.fromkeys(str(entry[key]) for entry in facts))

    libraries = dict.fromkeys(library for entry in facts for library in entry["libraries"])
    if "training" in kept:
        libraries[f"PyTorch {kept['training']['measured']['torch']}"] = None
    days = dict.fromkeys(sorted(entry["date"] for entry in facts))
    when = " to ".join((next(iter(days)), *([next(reversed(days))] if len(days) > 1 else [])))
    busiest = max(entry["busy_cores"] for entry in facts)
    return (
        f"Measured {when} at commit {words_of('commit')} on {words_of('cores')} cores of {words_of('processor')}, "
        f"instructions {words_of('instruction_set')}; {', '.join(libraries)}. "
        f"Before a section other work kept {busiest:.2f} cores busy at most."
    )


def written(text, kept):
    """`text` with its table made anew. @throws ValueError where it has no place for one."""
    if not BLOCK.search(text):
        raise ValueError("no `<!-- performance -->` and `<!-- end -->` in it")
    body = f"{table_of(kept)}\n\n{caption_of(kept)}\n"
    return BLOCK.sub(lambda block: f"{block[1]}{body}{block[2]}", text)


def measure(words, names):
    """Keeps each section as it is there. @return names of those that failed."""
    kept = read(words.measured)
    failed = []
    for name in names:
        print(f"performance_table: {name}", file=sys.stderr, flush=True)
        try:
            facts = facts_now(words)
            if facts["busy_cores"] > BUSY_CORES:
                print(f"performance_table: other work keeps {facts['busy_cores']:.1f} cores busy", file=sys.stderr)
            kept[name] = {"facts": facts, "measured": SECTIONS[name].measure(words)}
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"performance_table: {name}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        words.measured.parent.mkdir(parents=True, exist_ok=True)
        beside = words.measured.with_suffix(".tmp")
        beside.write_text(json.dumps(kept, indent=1) + "\n")
        beside.replace(words.measured)
    return failed


def read(file):
    return json.loads(file.read_text()) if file.exists() else {}


def draw(kept, folder):
    folder.mkdir(parents=True, exist_ok=True)
    if "collectives" in kept:
        collectives_beside_mpi.draw(kept["collectives"]["measured"], folder / "collectives-beside-mpi.png")
    if "many_ranks" in kept:
        rows = [tuple(row) for row in kept["many_ranks"]["measured"]]
        simulate_many_ranks.draw(rows, folder / "simulate-many-ranks.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", type=pathlib.Path, default=ROOT / "build" / "cpu" / "strata")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--pytorch", default=sys.executable, metavar="PYTHON", help="one that imports torch")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of a training step beside PyTorch's"
    )
    parser.add_argument("--models", metavar="MODEL/DTYPE,…", help="that are compared with PyTorch, instead of all")
    parser.add_argument("--rounds", type=int, default=3, help="turns of whatever is measured in turn")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--measured", type=pathlib.Path, default=ROOT / "build" / "performance.json", metavar="FILE")
    parser.add_argument("--write", type=pathlib.Path, metavar="README.md")
    parser.add_argument("--gallery", type=pathlib.Path, metavar="FOLDER")
    words = parser.parse_args()
    # The analysis package of this checkout, here and in the processes that are measured.
    sys.path.insert(0, str(ROOT / "analysis"))
    os.environ["PYTHONPATH"] = str(ROOT / "analysis")
    failed = measure(words, SECTIONS if words.only is None else words.only)
    kept = read(words.measured)
    if kept:
        print(f"{table_of(kept)}\n\n{caption_of(kept)}")
        if words.gallery:
            draw(kept, words.gallery)
        if words.write:
            words.write.write_text(written(words.write.read_text(encoding="utf-8"), kept), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
