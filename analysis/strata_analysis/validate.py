"""The table of errors of `strata validate`: predictions of runs that others measured. strata writes the rows, see
src/predict/predicted_runs.cpp; an error is predicted / measured - 1.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

# Groups of rows, in the order of the table.
GROUPS = (
    "hidden_size",
    "micro_batch",
    "tensor_parallelism",
    "data_parallelism",
    "pipeline_parallelism",
    "num_gpus",
    "recomputation",
    "basis",
)
WORST_ROWS = 5


def report(rows: pd.DataFrame) -> str:
    """Errors by group, the worst rows, and one last line over all rows."""
    rows = rows.assign(error=rows["predicted"] / rows["measured"] - 1)
    lines = [f"{rows['quantity'].iloc[0]}: predicted against measured", ""]
    groups = [group for group in GROUPS if rows[group].nunique() > 1]
    if groups:
        table = pd.concat([_by(rows, group) for group in groups], ignore_index=True)
        lines += [table.to_string(index=False), ""]
    lines += [f"{min(WORST_ROWS, len(rows))} worst rows", _worst(rows, groups), "", summary(rows["error"])]
    return "\n".join(lines)


def summary(errors: pd.Series | np.ndarray) -> str:
    """The last line: of the errors' magnitudes."""
    size = 100 * np.abs(np.asarray(errors))
    return f"mean {size.mean():.1f} %  median {np.median(size):.1f} %  max {size.max():.1f} %  rows {len(size)}"


def _by(rows: pd.DataFrame, group: str) -> pd.DataFrame:
    found = []
    for value, here in rows.groupby(group):
        size = here["error"].abs()
        found.append(
            {
                "group": group,
                "value": value,
                "rows": len(here),
                "bias": f"{100 * here['error'].median():+.1f} %",
                "mean": f"{100 * size.mean():.1f} %",
                "median": f"{100 * size.median():.1f} %",
                "max": f"{100 * size.max():.1f} %",
            }
        )
    return pd.DataFrame(found)


def _worst(rows: pd.DataFrame, groups: list[str]) -> str:
    worst = rows.loc[rows["error"].abs().sort_values(ascending=False, kind="stable").index[:WORST_ROWS]]
    table = worst[["line", *groups, "measured", "predicted"]].copy()
    for name in ("measured", "predicted"):
        table[name] = table[name].map("{:.6g}".format)
    table["error"] = (100 * worst["error"]).map("{:+.1f} %".format)
    return table.to_string(index=False)
