"""The short table of a sweep: one line a point, of the attempts that count."""

from __future__ import annotations

import math

import pandas as pd

from strata_analysis import peaks
from strata_analysis.derive import by_point
from strata_analysis.load import Results
from strata_analysis.published import amsp, autoddl, cdp, comparisons, oases, osdp

ORDER = ["model_name", "series", "num_ranks"]
# Columns that say which point a row is and how it ended, not how fast it was.
DESCRIPTIVE = ("model", "strategy", "dtype", "ranks", "runs", "ended")
PAPERS = (amsp, autoddl, oases, osdp)
PAPERS_BY_NAME = {"amsp": amsp, "osdp": osdp, "oases": oases, "cdp": cdp, "autoddl": autoddl}


def short_table(results: Results) -> str:
    """Median step time with its 99 % interval, rate, MFU, exposed communication, memory and loss of every point.

    Below it, what a paper prints of these points beside them.
    """
    points = by_point(results)
    # A long reason would push everything else off the screen, and often many points share it.
    reasons = list(dict.fromkeys(m for m in points.loc[points["status"] != "ok", "message"] if m))
    short = {reason: f"[{number}]" for number, reason in enumerate(reasons, 1)}
    marks = [short.get(message, "") for message in points["message"]]
    text = table_of(points.assign(message=marks)).to_string(index=False, justify="left")
    beside = [comparison for paper in PAPERS for comparison in comparisons(paper.COMPARISONS, points)]
    beside += comparisons(cdp.COMPARISONS, points, results)
    beside_papers = [f"\n{comparison.text()}" for comparison in beside]
    below = [f"{mark} {reason}" for reason, mark in short.items()]
    return "\n".join([text, *below, *(f"# {note}" for note in notes_of(points)), *beside_papers])


# What a pivot can show: name -> (heading, value of a point, format).
METRICS = {
    "step": ("ms a step", lambda p: 1e3 * p["step_seconds"], ",.1f"),
    "rate": ("{unit}s a second", lambda p: p["samples_per_second"], ",.0f"),
    "mfu": ("MFU, %", lambda p: 100 * p["mfu"], ".1f"),
    "busy": ("time with a kernel running, %", lambda p: 100 * p["busy_share"], ".1f"),
    "memory": ("arena, MiB", lambda p: p["arena_peak_bytes"] / 2**20, ",.1f"),
}


def pivot(results: Results, metric: str) -> str:
    """Series by ranks, a block a model: the metric of each point, or how a point ended that has none."""
    heading, value, form = METRICS[metric]
    blocks = []
    for model, members in by_point(results).groupby("model_name"):
        ranks = sorted(set(members["num_ranks"]))
        rows = []
        for label, series in members.groupby("series"):
            cells = {
                point["num_ranks"]: format(value(point), form) if point["status"] == "ok" else point["status"]
                for _, point in series.iterrows()
            }
            rows.append({"strategy": label} | {f"{count} ranks": cells.get(count, "") for count in ranks})
        unit = members["sample_unit"].max()  # a point that never ran has none
        blocks.append(f"{model}: {heading.format(unit=unit)}\n{pd.DataFrame(rows).to_string(index=False)}")
    return "\n\n".join(blocks)


def table_of(points: pd.DataFrame) -> pd.DataFrame:
    """Text, one row a point; columns that are empty everywhere, or that describe all points alike, are left out."""
    table = _full_table(points)
    left_out = _shared(table)
    return table[[name for name in table if name not in left_out and (table[name] != "").any()]]


def with_filled_columns(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of equal columns, without the columns that are empty in all of them."""
    return [{name: row[name] for name in row if any(other[name] for other in rows)} for row in rows]


def _full_table(points: pd.DataFrame) -> pd.DataFrame:
    points = points.sort_values(ORDER)
    return pd.DataFrame([_row(point) for _, point in points.iterrows()], index=points["point"])


def _shared(table: pd.DataFrame) -> dict[str, str]:
    """Of the columns that describe points, those that say the same of all: what does not differ needs no column."""
    if len(table) < 2:
        return {}
    return {name: table[name].iloc[0] for name in DESCRIPTIVE if table[name].iloc[0] and table[name].nunique() == 1}


def notes_of(points: pd.DataFrame) -> list[str]:
    """What holds for all points, what the MFU of a table means, and over which emulated link all points ran."""
    shared = ", ".join(f"{name} {text}" for name, text in _shared(_full_table(points)).items())
    conventions = sorted(set(points["flop_convention"]) - {""})  # a refused point has none
    notes = [f"all points: {shared}"] if shared else []
    notes += [f"MFU: {convention} convention" for convention in conventions]
    notes += [f"MFU is of {words}" for words in peaks.in_words(points[points["mfu"].notna()])]
    if (points["mfu"] > 1).any():
        notes.append(
            f"{peaks.ABOVE_PEAK}: faster than the measured peak, which was measured while the machine was disturbed"
        )
    if points["samples_per_second_by_clock"].notna().any():
        notes.append("by the clock: rate with what passes between steps")
    if points["num_disturbed"].any():
        notes.append("disturbed: a launch's own peak was more than a tenth below that of the sweep")
    notes += set(points["link"]) if points["link"].nunique() == 1 else []
    return [note for note in notes if note]


def _row(point: pd.Series) -> dict[str, str]:
    ok = point["status"] == "ok"
    step = f"{1e3 * point['step_seconds']:.1f}" if not math.isnan(point["step_seconds"]) else ""
    if not math.isnan(point["step_seconds_low"]):
        step += f" [{1e3 * point['step_seconds_low']:.1f}, {1e3 * point['step_seconds_high']:.1f}]"
    exposed = point["exposed_communication_seconds"] / point["step_seconds"]
    return {
        "model": point["model_name"],
        "strategy": point["series"],
        "dtype": point["dtype"],
        "ranks": str(point["num_ranks"]),
        "runs": str(point["num_runs"]) if point["num_runs"] > 1 else "",
        "step ms [99 %]": step,
        "rate": _number(point["samples_per_second"], f"{point['samples_per_second']:.0f} {point['sample_unit']}s/s"),
        "by the clock": _number(point["samples_per_second_by_clock"], f"{point['samples_per_second_by_clock']:.0f}"),
        "MFU": peaks.share_in_words(point["mfu"]),
        "disturbed": _disturbed(point),
        "exposed": _number(exposed, f"{100 * exposed:.1f} %"),
        "arena MiB": f"{point['arena_peak_bytes'] / 2**20:.1f}" if point["arena_peak_bytes"] else "",
        "loss": _number(point["last_loss"], f"{point['first_loss']:.3f} -> {point['last_loss']:.3f}"),
        "ended": f"{point['status']} {point['message']}" if point["message"] and not ok else point["status"],
    }


def _disturbed(point: pd.Series) -> str:
    if not point["num_disturbed"]:
        return ""
    if point["num_runs"] > 1:
        return f"{point['num_disturbed']} of {point['num_runs']} runs"
    return f"{100 * point['peak_flops_per_second'] / point['best_peak_flops_per_second']:.0f} % of peak"


def _number(value: float, text: str) -> str:
    return "" if math.isnan(value) else text
