"""How good predictions were: those that every run stores, against what it measured."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from strata_analysis.load import INDEX, Results

STEP = "step_seconds_max"


def errors(results: Results) -> pd.DataFrame:
    """One row a prediction of a point's last attempt that ended well and whose measurement is not zero.

    Columns: INDEX, model_name, strategy_name, num_ranks, link, source, metric, predicted, measured and
    `error` = (predicted - measured) / measured.
    """
    points = results.last()
    points = points[(points["status"] == "ok") & ~points["simulated"].astype(bool)]
    facts = points[[*INDEX, "model_name", "strategy_name", "num_ranks", "transport"]]
    rows = facts.merge(results.predictions, on=INDEX)
    rows = rows[rows["measured"] != 0.0].copy()
    rows["error"] = (rows["predicted"] - rows["measured"]) / rows["measured"]
    return rows


def spearman(predicted, measured) -> float:
    """Rank correlation, ties at their mean rank; NaN for fewer than three points."""
    if len(predicted) < 3:
        return math.nan
    a, b = pd.Series(list(predicted)).rank(), pd.Series(list(measured)).rank()
    return math.nan if a.nunique() < 2 or b.nunique() < 2 else float(np.corrcoef(a, b)[0, 1])


def _group(metric: str) -> str:
    if metric.startswith("kernel."):
        return "operators"
    if metric.startswith("collective."):
        return "collectives"
    return "step" if metric.endswith("_seconds") or metric == STEP else "memory and bytes"


def tables(results: Results) -> list[tuple[str, pd.DataFrame]]:
    """(title, table of text): errors by step, operator, collective, memory and bytes; then points one by one."""
    rows = errors(results)
    found = []
    rows["group"] = rows["metric"].map(_group)
    for group in ("step", "operators", "collectives", "memory and bytes"):
        here = rows[rows["group"] == group]
        if len(here):
            found.append((f"{group}: predicted against measured", _table(here, group in ("operators", "collectives"))))
    steps = rows[rows["metric"] == STEP].sort_values(["model_name", "strategy_name", "num_ranks"])
    return [*found, ("points", _points(steps))] if len(steps) else found


def notes(results: Results) -> list[str]:
    """The errors of the step time over all points, with the rank correlation; what predicted."""
    rows = errors(results)
    steps = rows[rows["metric"] == STEP]
    lines = []
    if len(steps):
        magnitude = steps["error"].abs()
        lines.append(
            f"step time over {len(steps)} points: median error {100 * magnitude.median():.1f} %, "
            f"mean {100 * magnitude.mean():.1f} %, largest {100 * magnitude.max():.1f} %, "
            f"Spearman {_number(spearman(steps['predicted'], steps['measured']))}"
        )
    return [*lines, *(f"# {source}" for source in sorted(set(rows["source"])))]


def report(results: Results) -> str:
    found = tables(results)
    if not found:
        return "no run of these results has a prediction beside a measurement"
    lines = [f"{title}\n{table.to_string(index=False)}\n" for title, table in found]
    return "\n".join([*lines, *notes(results)])


def _number(value: float) -> str:
    return "undefined (fewer than three different points)" if math.isnan(value) else f"{value:.3f}"


def _table(rows: pd.DataFrame, weights: bool) -> pd.DataFrame:
    total = rows.loc[rows["unit"] == "s", "measured"].sum()
    found = []
    for metric, here in rows.groupby("metric"):
        magnitude = here["error"].abs()
        found.append(
            {
                "metric": metric.removeprefix("kernel.").removeprefix("collective.").removesuffix("_seconds"),
                "points": len(here),
                "median error": f"{100 * here['error'].median():+.1f} %",
                "mean |error|": f"{100 * magnitude.mean():.1f} %",
                "largest |error|": f"{100 * magnitude.max():.1f} %",
                "share of time": f"{100 * here['measured'].sum() / total:.1f} %" if weights else "",
            }
        )
    table = pd.DataFrame(found)
    return table[[name for name in table if (table[name] != "").any()]]


def _points(steps: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model": steps["model_name"],
            "strategy": steps["strategy_name"],
            "ranks": steps["num_ranks"],
            "transport": steps["transport"],
            "predicted ms": (1e3 * steps["predicted"]).map("{:.2f}".format),
            "measured ms": (1e3 * steps["measured"]).map("{:.2f}".format),
            "error": (100 * steps["error"]).map("{:+.1f} %".format),
        }
    )
