"""The command line: collect, figures, table, compare. `strata collect …` and so on call it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from strata_analysis.load import LoadError, load
from strata_analysis.versions import UnknownVersion


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="strata", description="Collect, tabulate and draw the results of strata.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, help_text in (
        ("collect", "merge the attempts of a sweep into collected.h5, .csv and .parquet"),
        ("figures", "draw the figures of a sweep as PNG, SVG and PDF"),
        ("table", "print a short table of a sweep"),
        ("compare", "set predictions beside measurements: errors by step, operator, collective and memory"),
    ):
        verb = verbs.add_parser(name, help=help_text, description=help_text)
        verb.add_argument("results", help="folder of an experiment's results, e.g. results/quickstart")
        if name == "figures":
            verb.add_argument("--output", help="folder of the figures (default: figures/ below the results)")
        if name == "compare":
            verb.add_argument("--predicted", action="store_true", required=True, help="what is compared")
    words = parser.parse_args(arguments)
    try:
        return {"collect": _collect, "figures": _figures, "table": _table, "compare": _compare}[words.verb](words)
    except (LoadError, UnknownVersion, OSError) as error:
        print(f"strata: {error}", file=sys.stderr)
        return 2


def _collect(words: argparse.Namespace) -> int:
    from strata_analysis.collect import collect

    for file in collect(words.results):
        print(file)
    return 0


def _figures(words: argparse.Namespace) -> int:
    from strata_analysis.figures import draw_all

    path = Path(words.results)
    output = Path(words.output) if words.output else (path if path.is_dir() else path.parent) / "figures"
    drawn = draw_all(load(path), output)
    for file in drawn.files:
        print(file)
    for name, reason in drawn.left_out.items():
        print(f"not drawn: {name}: {reason}")
    return 0


def _table(words: argparse.Namespace) -> int:
    from strata_analysis.table import short_table

    print(short_table(load(words.results)))
    return 0


def _compare(words: argparse.Namespace) -> int:
    from strata_analysis.predicted import report

    print(report(load(words.results)))
    return 0
