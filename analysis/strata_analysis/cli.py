"""The command line: collect, figures, table, compare, report, validate; `strata collect …` and so on call it.

Each verb imports what it needs when it runs: pandas and HDF5 alone take half a second, more than all of help.

claims and tables are of the papers, for this repository: `python -m strata_analysis claims results`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from strata_analysis import confidence
from strata_analysis.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    words = _parser().parse_args(arguments)
    try:
        return VERBS[words.verb](words)
    except (UserError, OSError) as error:
        print(f"strata: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="strata", description="Collect, tabulate, compare and draw results of strata."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    results_help = "folder of an experiment's results, e.g. results/quickstart"
    for name, help_text in (
        ("collect", "merge the attempts of a sweep into collected.h5, .csv and .parquet"),
        ("figures", "draw the figures of a sweep as PNG, SVG and PDF"),
        ("table", "print a short table of a sweep"),
        ("report", "write a sweep's page: one self-contained HTML file"),
    ):
        verb = verbs.add_parser(
            name, help=help_text, description=help_text, epilog=f"Example:  strata {name} results/quickstart"
        )
        verb.add_argument("results", help=results_help)
        if name == "table":
            verb.add_argument("--pivot", choices=["ranks"], help="strategies by ranks instead, of one metric")
            verb.add_argument(
                "--metric",
                choices=["step", "rate", "mfu", "busy", "memory"],
                default="rate",
                help="what --pivot shows (default: %(default)s)",
            )
        if name == "figures":
            verb.add_argument(
                "--output", metavar="FOLDER", help="folder of the figures (default: figures/ below the results)"
            )
    verb = verbs.add_parser(
        "compare",
        help="which strategy is faster, or how good predictions were",
        description="Step times of two strategies of one sweep, or of two sweeps, over the points that they share.",
        epilog="""examples:
  strata compare results/x --baseline ddp --candidate gpipe     two strategies
  strata compare results/x --baseline ddp                       all others against one
  strata compare results/x --baseline ddp --candidate 1f1b,stages=2
  strata compare results/x --baseline ddp --picture ratios.png
  strata compare before after --allow-different git_commit --allow-different binary_hash
  strata compare results/x --predicted                          predictions beside measurements

exit codes: 0 better or undecided, 1 some point is worse, 2 bad input, 4 some point is incomparable""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument("results", help=results_help)
    verb.add_argument("other", nargs="?", help="results of the candidate; without it they are those of the baseline")
    verb.add_argument("--baseline", default="", metavar="STRATEGY", help="strategy to compare with, e.g. ddp")
    verb.add_argument("--candidate", default="", metavar="STRATEGY", help="strategy in question (default: all others)")
    verb.add_argument(
        "--confidence",
        type=_confidence,
        default=confidence.OF_VERDICTS,
        help="of intervals and verdicts (%(default)s)",
    )
    verb.add_argument(
        "--allow-different",
        action="append",
        default=[],
        metavar="NAME",
        help="provenance or key that is meant to differ, e.g. git_commit or train.micro_batches; may be repeated",
    )
    verb.add_argument("--json", action="store_true", help="JSON instead of a table")
    verb.add_argument("--picture", type=Path, metavar="FILE", help="draw the ratios, too: .png, .svg or .pdf")
    verb.add_argument("--predicted", action="store_true", help="errors of predictions instead, by step and operator")
    help_text = "every number that the papers print beside ours, with a verdict: claims.csv, index.html, a page a paper"
    verb = verbs.add_parser("claims", help=help_text, description=help_text)
    verb.add_argument("results", help="folder of the experiments' results, e.g. results")
    verb.add_argument("papers", nargs="*", metavar="PAPER", help="amsp, osdp, oases, cdp, autoddl (default: all)")
    help_text = "write the tables between comments of Markdown files from results"
    verb = verbs.add_parser("tables", help=help_text, description=help_text)
    verb.add_argument("files", nargs="+", type=Path, metavar="FILE.md", help="e.g. experiments/amsp/README.md")
    verb.add_argument("--results", default="results", help="folder of the experiments' results (default: %(default)s)")
    verb.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where they differ from the results"
    )
    verb = verbs.add_parser("order", help="draw the orders that `strata order` writes to us")
    verb.add_argument("--output", required=True, metavar="FILE", help=".png, .svg or .pdf")
    verb.add_argument("--title", default="", help="of the picture")
    verb = verbs.add_parser("explain", help="say why a plan is as it is, which `strata plan --explain` writes to us")
    verb.add_argument("--page", type=Path, metavar="FILE.html", help="a page with a picture, too")
    help_text = "predict the runs of a table of measurements with the closed form, and print the errors"
    verb = verbs.add_parser("validate", help=help_text, description=help_text)
    verb.add_argument("table", metavar="FILE.csv", help="measured runs")
    verb.add_argument("--cluster", required=True, metavar="FILE.toml", help="of a cluster with [transformer_costs]")
    verb.add_argument("--rows", action="store_true", help="every row's prediction as CSV instead of the errors")
    verb.add_argument(
        "--sensitivities",
        action="store_true",
        help="as --rows, with d ln(time) / d ln(parameter) of every fitted parameter",
    )
    return parser


def _confidence(text: str) -> float:
    value = float(text)
    if not 0.5 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not a confidence, such as 0.95")
    return value


def _collect(words: argparse.Namespace) -> int:
    from strata_analysis.collect import collect

    for file in collect(words.results):
        print(file)
    return 0


def _figures(words: argparse.Namespace) -> int:
    from strata_analysis.figures import draw_all
    from strata_analysis.load import load

    path = Path(words.results)
    output = Path(words.output) if words.output else (path if path.is_dir() else path.parent) / "figures"
    drawn = draw_all(load(path), output)
    for file in drawn.files:
        print(file)
    for name, reason in drawn.left_out.items():
        print(f"not drawn: {name}: {reason}")
    return 0


def _table(words: argparse.Namespace) -> int:
    from strata_analysis.load import load
    from strata_analysis.table import pivot, short_table

    results = load(words.results)
    print(pivot(results, words.metric) if words.pivot else short_table(results))
    return 0


def _compare(words: argparse.Namespace) -> int:
    from strata_analysis import compare, compare_text, picture, predicted
    from strata_analysis.load import load

    if words.predicted:
        if words.other or words.baseline or words.candidate or words.json or words.picture:
            raise compare.CompareError("--predicted stands alone: RESULTS --predicted")
        print(predicted.report(load(words.results)))
        return 0
    if words.picture:
        picture.kind_of(words.picture)
    comparison = compare.compare(
        load(words.results),
        load(words.other) if words.other else None,
        words.baseline,
        words.candidate,
        words.confidence,
        tuple(words.allow_different),
    )
    if words.picture:
        from strata_analysis.figures import forest

        picture.write(forest.figure_of(comparison), words.picture)
    print((compare_text.to_json if words.json else compare_text.to_text)(comparison))
    return comparison.exit_code


def _report(words: argparse.Namespace) -> int:
    from strata_analysis.report import report

    for file in report(words.results):
        print(file)
    return 0


def _validate(words: argparse.Namespace) -> int:
    from strata_analysis.fitted_cluster import read_fitted_cluster
    from strata_analysis.measured_runs import parse_measured_runs, read_text
    from strata_analysis.validate import predicted_runs, report, to_csv

    cluster = read_fitted_cluster(words.cluster)
    runs = parse_measured_runs(read_text(words.table), words.table)
    rows = predicted_runs(runs, cluster, words.sensitivities)
    if words.rows or words.sensitivities:
        print(to_csv(rows), end="")
    else:
        print(report(rows))
    return 0


def _claims(words: argparse.Namespace) -> int:
    from strata_analysis.report import papers
    from strata_analysis.table import PAPERS_BY_NAME

    unknown = [name for name in words.papers if name not in PAPERS_BY_NAME]
    if unknown:
        print(f"strata: no paper {unknown[0]}; there are {', '.join(PAPERS_BY_NAME)}", file=sys.stderr)
        return 2
    files, counted = papers.write(words.results, words.papers or list(PAPERS_BY_NAME))
    for file in files:
        print(file)
    print(counted.to_string())
    return 0


def _tables(words: argparse.Namespace) -> int:
    from strata_analysis import readme_tables
    from strata_analysis.published.sweeps import NotRun, Sweeps

    sweeps = Sweeps(Path(words.results))
    differ = False
    for file in words.files:
        try:
            if not words.check:
                readme_tables.write(file, sweeps)
                continue
            for line in readme_tables.differences(file.read_text(encoding="utf-8"), sweeps):
                print(f"{file}: {line}")
                differ = True
        except readme_tables.TableError as error:
            print(f"strata: {file}: {error}", file=sys.stderr)
            return 2
        except NotRun as experiment:
            print(f"strata: {file}: no results of {experiment} in {words.results}", file=sys.stderr)
            return 2
    return 1 if differ else 0


def _order(words: argparse.Namespace) -> int:
    from strata_analysis.order import OrderError, write

    try:
        write(sys.stdin.read(), Path(words.output), words.title)
    except OrderError as error:
        print(f"strata: {error}", file=sys.stderr)
        return 2
    print(words.output)
    return 0


def _explain(words: argparse.Namespace) -> int:
    from strata_analysis.explain import parse, to_text, write_page

    explanation = parse(sys.stdin.read())
    print(to_text(explanation), end="")
    if words.page:
        write_page(explanation, words.page)
        print(f"\n{words.page}")
    return 0


VERBS = {
    "collect": _collect,
    "figures": _figures,
    "table": _table,
    "report": _report,
    "compare": _compare,
    "order": _order,
    "explain": _explain,
    "validate": _validate,
    "claims": _claims,
    "tables": _tables,
}
