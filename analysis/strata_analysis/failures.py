"""Why points have no numbers, a line a reason: what is refused in a hundred places is refused for three reasons.

Reasons that differ in numbers alone are one. Beside attempts that ended badly stand the points that a submission left
out before it queued anything, as it wrote them into `submissions/<n>/left-out.json`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pandas as pd

from strata_analysis.load import INDEX, LoadError, Results
from strata_analysis.table import with_filled_columns

LEFT_OUT_SCHEMA = "strata-left-out"
MOST_POINTS = 4  # named at a reason
LEFT_OUT = "left out before queueing"
COLUMNS = ["status", "message", "words", "when", "block", "later"]


def left_out(folder: Path, results: Results) -> pd.DataFrame:
    """Points that no submission queued: columns point, axes, status, message.

    Of several submissions the last one that names a point counts. A point that has attempts was queued after all.
    """
    found: dict[str, dict] = {}
    files = [file for file in folder.glob("submissions/*/left-out.json") if file.parent.name.isdigit()]
    for file in sorted(files, key=lambda file: int(file.parent.name)):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if (content["schema"], content["version"]) != (LEFT_OUT_SCHEMA, 1):
                raise LoadError(f"schema is not {LEFT_OUT_SCHEMA}, version 1")
            found |= {point["point"]: point for point in content["points"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"warning: left out: {file}: {error}", file=sys.stderr)
    tried = set(results.points["point"])
    rows = [point for name, point in found.items() if name not in tried]
    return pd.DataFrame(rows, columns=["point", "axes", "status", "message"])


def by_reason(results: Results, never_queued: pd.DataFrame) -> list[dict[str, str]]:
    """A row of text for each reason, the most frequent one first; columns that are empty everywhere are left out."""
    table = pd.DataFrame([*_of_attempts(results), *_of_left_out(never_queued)], columns=COLUMNS)
    table["reason"] = [_without_numbers(message) for message in table["message"]]
    rows = []
    for _, members in table.groupby(["when", "status", "reason"], sort=False):
        names = list(dict.fromkeys(members["words"]))
        more = f" and {len(names) - MOST_POINTS} more" if len(names) > MOST_POINTS else ""
        later = int(members["later"].sum())
        first = members.iloc[0]
        rows.append(
            {
                "ended": first["status"],
                "because": first["message"] + (" (numbers differ)" if members["message"].nunique() > 1 else ""),
                "points": str(len(names)),
                "when": first["when"],
                "attempts": str(len(members)) if len(members) > len(names) else "",
                "which": "; ".join(names[:MOST_POINTS]) + more,
                "blocks": ", ".join(dict.fromkeys(members.loc[members["block"] != "", "block"])),
                "since then": f"{later} ended well when tried again" if later else "",
            }
        )
    return with_filled_columns(sorted(rows, key=lambda row: -int(row["points"])))


def _without_numbers(message: str) -> str:
    return re.sub(r"\d+([.,]\d+)*", "#", message)


def _of_attempts(results: Results) -> list[dict]:
    """Every attempt that did not end well, also where a later one did."""
    points = results.points
    good = points[points["status"] == "ok"]
    rows = []
    for _, attempt in points[~points["status"].isin(["ok", "running"])].iterrows():
        later = good[(good[INDEX[:2]] == attempt[INDEX[:2]]).all(axis=1) & (good["attempt"] > attempt["attempt"])]
        ranks = "1 rank" if attempt["num_ranks"] == 1 else f"{attempt['num_ranks']} ranks"
        rows.append(
            {
                "status": attempt["status"],
                "message": attempt["message"],
                "words": f"{attempt['model_name']}, {attempt['strategy_name']}, {ranks} [{attempt['point']}]",
                "when": "",
                "block": "" if attempt["block"] < 0 else str(attempt["block"]),
                "later": (later["block"] == attempt["block"]).any(),
            }
        )
    return rows


def _of_left_out(points: pd.DataFrame) -> list[dict]:
    return [
        {
            "status": point["status"],
            "message": point["message"],
            "words": f"{point['axes']} [{point['point']}]",
            "when": LEFT_OUT,
            "block": "",
            "later": False,
        }
        for _, point in points.iterrows()
    ]
