"""What stands in a report: plain values for the template, nothing about their looks."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pandas as pd

from strata_analysis import compare, evaluated, predicted
from strata_analysis.answer import answer
from strata_analysis.compare_text import METHOD, columns
from strata_analysis.derive import by_point
from strata_analysis.failures import by_reason, left_out
from strata_analysis.figures import each_used, style
from strata_analysis.load import Results
from strata_analysis.ranking import NOTE as RANKING_NOTE
from strata_analysis.ranking import ranking
from strata_analysis.report.inline_svg import figure_in_page
from strata_analysis.series import keys_of
from strata_analysis.table import ORDER, notes_of, table_of

# Attributes that say who measured what where; those that are lists are shown without repetitions.
PROVENANCE = {
    "creator_version": "strata",
    "git_commit": "commit",
    "binary_hash": "executable",
    "schema_version": "schema",
    "launcher": "launcher",
    "host_names": "hosts",
    "device_names": "devices",
    "num_nodes": "nodes",
    "ranks_per_node": "ranks a node",
    "threads_per_rank": "threads a rank",
    "transport": "transport",
    "progress_mode": "progress",
    "topology_address": "place in the network",
    "flop_convention": "FLOP convention",
    "peak_source": "peak of MFU",
    "library_versions": "libraries",
    "environment": "environment",
    "modules_loaded": "modules",
    "block_job": "head-to-head job",
    "block_seed": "seed of its blocks",
}
# Of an attribute that does not apply.
ABSENT = {"", "-1"}


def content_of(results: Results, folder: Path) -> dict:
    """Everything that page.html.j2 names."""
    points = by_point(results).sort_values(ORDER)
    first = points.iloc[0]
    never_queued = left_out(folder, results)
    return {
        "title": first["experiment_title"] or first["experiment_name"],
        "name": first["experiment_name"],
        "summary": _summary(results, points, len(never_queued)),
        "ranking": _ranking(results, points),
        "ranking_note": RANKING_NOTE,
        # Why a point failed is said below, in full.
        "points": _rows(table_of(points.assign(message=""))),
        "points_notes": notes_of(points),
        "comparison": _comparison(results),
        "figures": _figures(results),
        "evaluations": _rows(evaluated.table(results)),
        "predictions": [(title, _rows(table)) for title, table in predicted.tables(results)],
        "predictions_notes": [note.removeprefix("# ") for note in predicted.notes(results)],
        "failures": by_reason(results, never_queued),
        "plans": _plans(points),
        "common_keys": _common_keys(points),
        "varying_keys": _varying_keys(points),
        "provenance": _provenance(points),
        "traces": _traces(folder, points),
    }


def _rows(table: pd.DataFrame) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.items()} for row in table.to_dict("records")]


def point_words(point: pd.Series) -> str:
    ranks = "1 rank" if point["num_ranks"] == 1 else f"{point['num_ranks']} ranks"
    return f"{point['model_name']}, {point['series']}, {ranks}"


def _summary(results: Results, points: pd.DataFrame, num_left_out: int) -> list[tuple[str, str]]:
    counts = Counter(points["status"])
    ended = ", ".join(f"{counts[status]} {status}" for status in sorted(counts, key=lambda s: (s != "ok", s)))
    simulated = int(points["simulated"].astype(bool).sum())
    rows = [
        ("points", f"{len(points)}: {ended}"),
        ("left out before queueing", str(num_left_out) if num_left_out else ""),
        ("attempts", f"{len(results.points)}, of which {int(results.points['counted'].sum())} count"),
        ("models", ", ".join(sorted(set(points["model_name"])))),
        ("strategies", ", ".join(sorted(set(points["strategy_name"])))),
        ("ranks", ", ".join(map(str, sorted(set(points["num_ranks"]))))),
        ("measured", f"{len(points) - simulated} points, {simulated} simulated"),
        ("steps", _steps(points)),
        ("time", " to ".join(sorted({text for text in (min(results.points["start_time"]), _end(results)) if text}))),
    ]
    return [(name, text) for name, text in rows if text]


def _steps(points: pd.DataFrame) -> str:
    """How many steps are measured, and how many of which kind are in no statistic of time."""
    kinds = {"warm-up": "num_warmup_steps", "filling ranks": "num_fill_steps", "draining them": "num_drain_steps"}
    left_out = [f"{points[name].sum()} {kind}" for kind, name in kinds.items() if points[name].sum()]
    measured = f"{points['num_measured_steps'].sum()} measured"
    return "; ".join([measured, f"left out: {', '.join(left_out)}"] if left_out else [measured])


def _end(results: Results) -> str:
    return max(results.points["end_time"])


def _ranking(results: Results, points: pd.DataFrame) -> list[tuple[str, list[dict[str, str]]]]:
    """(model, its rows) of every model of which two strategies share a place."""
    comparison = compare.compare_with_best(results)
    tables = []
    for model in sorted({pair.model for pair in comparison.pairs}):
        pairs = [pair for pair in comparison.pairs if pair.model == model]
        tables.append((model, ranking(dataclasses.replace(comparison, pairs=pairs), points)))
    return tables


def _comparison(results: Results) -> dict | None:
    """Against the strategy that has the most points in common with the others; None where there is no pair."""
    comparison = compare.compare_with_most_shared(results)
    if comparison is None:
        return None
    rows = columns(comparison)
    if len({row["baseline"] for row in rows}) == 1:
        rows = [{name: text for name, text in row.items() if name != "baseline"} for row in rows]
    return {
        "answer": answer(comparison),
        "baseline": comparison.pairs[0].baseline.split(",")[0],
        "verdict": comparison.verdict,
        "rows": rows,
        "alone": comparison.alone,
        "method": METHOD,
    }


def _figures(results: Results) -> dict:
    figures = list(each_used(results, lambda name, figure: figure_in_page(figure, name)))
    return {
        "drawn": [figure for _, figure in figures if not isinstance(figure, str)],
        "left_out": [(name.replace("_", " "), reason) for name, reason in figures if isinstance(reason, str)],
    }


def _plans(points: pd.DataFrame) -> list[dict]:
    """Each different plan once, with the points that have it."""
    plans = []
    for text, members in points[points["plan_text"] != ""].groupby("plan_text", sort=False):
        plans.append({"text": text, "points": [point_words(point) for _, point in members.iterrows()]})
    return plans


def _common_keys(points: pd.DataFrame) -> list[tuple[str, str]]:
    keys = [keys_of(point) for _, point in points.iterrows()]
    return [(name, value) for name, value in keys[0].items() if all(other.get(name) == value for other in keys)]


def _varying_keys(points: pd.DataFrame) -> list[tuple[str, str]]:
    keys = [keys_of(point) for _, point in points.iterrows()]
    found = []
    for name in sorted({name for point_keys in keys for name in point_keys}):
        counts = Counter(point_keys.get(name, "default") for point_keys in keys)
        if len(counts) > 1:
            found.append((name, _counted(counts)))
    return found


def _provenance(points: pd.DataFrame) -> list[tuple[str, str]]:
    rows = []
    for name, words in PROVENANCE.items():
        counts = Counter(_text(value) for value in points[name])
        if set(counts) - ABSENT:
            rows.append((words, _counted(counts)))
    peaks = points["peak_flops_per_second"].dropna()
    if len(peaks):
        rows.append(("peak of one rank", _range(peaks / 1e9, "GFLOP/s")))
    for name, words in (("sustained", "sustained by one rank"), ("nameplate", "nameplate of one rank")):
        rates = points[f"{name}_flops_per_second"].dropna()
        if len(rates):
            rows.append((words, _range(rates / 1e9, "GFLOP/s")))
    bandwidths = points["all_reduce_bytes_per_second"].dropna()
    if len(bandwidths):
        rows.append(("all-reduce bus bandwidth", _range(bandwidths / 1e9, "GB/s")))
    return rows


def _text(value) -> str:
    return ", ".join(dict.fromkeys(value)) if isinstance(value, list) else str(value)


def _counted(counts: Counter) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(
        f"{value or 'none'} ({count} {'point' if count == 1 else 'points'})" for value, count in sorted(counts.items())
    )


def _range(values: pd.Series, unit: str) -> str:
    low, high = style.number(values.min()), style.number(values.max())
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _traces(folder: Path, points: pd.DataFrame) -> list[dict[str, str]]:
    """Chrome traces below the folder of the results, whoever wrote them there."""
    words = {point["point"]: point_words(point) for _, point in points.iterrows()}
    found = []
    for file in sorted(folder.rglob("*.json")):
        if not file.name.endswith(".status.json") and _is_trace(file):
            of_point = next((text for point, text in words.items() if file.name.startswith(point)), "")
            found.append({"href": file.relative_to(folder).as_posix(), "words": of_point})
    return found


def _is_trace(file: Path) -> bool:
    with open(file, encoding="utf-8", errors="replace") as stream:
        return json.dumps("traceEvents") in stream.read(4096)
