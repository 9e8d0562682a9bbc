"""`strata validate`: predictions of runs that others measured, and the table of their errors; an error is
predicted / measured - 1.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from strata_analysis.fitted_cluster import COSTS, INTERVAL_SHARE, KNOWN_OF, FittedCluster
from strata_analysis.measured_runs import COUNTS, QUANTITIES
from strata_analysis.transformer_iteration import (
    first_stage_activation_bytes,
    layer_activation_bytes,
    sensitivities,
    transformer_iteration,
)

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
TIME, LAYER_BYTES, STAGE_BYTES = QUANTITIES


def predicted_runs(runs: pd.DataFrame, cluster: FittedCluster, with_sensitivities: bool = False) -> pd.DataFrame:
    """A row a run: `quantity`, `line`, the run, what was `measured` and what is `predicted` of it in the same unit, its
    `basis`; of times also `layers_share`, the layers' part, `at_least` and `at_most`, the interval that the cluster's
    fit says, where it says one, and if wanted a column of d ln(time) / d ln(parameter) for each of COSTS.

    @param runs as of measured_runs.parse_measured_runs."""
    quantity = runs["quantity"].iloc[0]
    runs = completed(runs, cluster)
    columns = ["quantity", "line", *COUNTS, "vocabulary_size", "virtual_stages", "recomputation", "sequence_parallel"]
    rows = runs[[*columns, "measured"]]
    if quantity != TIME:
        bytes_of = {LAYER_BYTES: layer_activation_bytes, STAGE_BYTES: first_stage_activation_bytes}[quantity]
        return rows.assign(predicted=bytes_of(runs), basis="formula")
    estimate = transformer_iteration(runs, cluster)
    share = estimate.layers_seconds / estimate.seconds
    rows = rows.assign(predicted=1e3 * estimate.seconds, basis=estimate.basis, layers_share=share)
    rows = with_interval(rows, cluster)
    if not with_sensitivities:
        return rows
    return rows.join(pd.DataFrame(sensitivities(runs, cluster), columns=list(COSTS), index=rows.index))


def with_interval(rows: pd.DataFrame, cluster: FittedCluster) -> pd.DataFrame:
    """@p rows with `at_least` and `at_most` around `predicted`, where the cluster has intervals: of rows that its fit
    did not see INTERVAL_SHARE were measured between them."""
    if not cluster.intervals:
        return rows
    one, many = (rows["basis"].map(KNOWN_OF).map(of_known) for of_known in cluster.intervals)
    factor = np.exp(np.where(rows["num_gpus"] > cluster.devices_per_node, many, one).astype(float))
    return rows.assign(at_least=rows["predicted"] / factor, at_most=rows["predicted"] * factor)


def completed(runs: pd.DataFrame, cluster: FittedCluster) -> pd.DataFrame:
    """What the table does not say comes from the cluster, whose campaign measured it."""
    if "vocabulary_size" not in runs:
        runs = runs.assign(vocabulary_size=cluster.vocabulary_size)
    if "recomputation" not in runs:
        one, many = cluster.recomputation_on_one_node, cluster.recomputation_on_many_nodes
        runs = runs.assign(recomputation=np.where(runs["num_gpus"] > cluster.devices_per_node, many, one))
    return runs


def to_csv(rows: pd.DataFrame) -> str:
    """With a header; numbers in the fewest digits that read back equal."""
    texts = {name: [str(value).removesuffix(".0") for value in rows[name]] for name in rows}
    return "".join(",".join(line) + "\n" for line in [rows.columns, *zip(*texts.values(), strict=True)])


def report(rows: pd.DataFrame) -> str:
    """Errors by group, the worst rows, how many rows lie in their interval, and one last line over all rows."""
    rows = rows.assign(error=rows["predicted"] / rows["measured"] - 1)
    lines = [f"{rows['quantity'].iloc[0]}: predicted against measured", ""]
    groups = [group for group in GROUPS if rows[group].nunique() > 1]
    if groups:
        table = pd.concat([_by(rows, group) for group in groups], ignore_index=True)
        lines += [table.to_string(index=False), ""]
    lines += [f"{min(WORST_ROWS, len(rows))} worst rows", _worst(rows, groups), ""]
    if "at_least" in rows:
        inside = rows["measured"].between(rows["at_least"], rows["at_most"])
        share = f"{100 * INTERVAL_SHARE:.0f} %"
        lines.append(f"{inside.sum()} of {len(rows)} rows lie in the interval that holds {share} of rows not fitted to")
    lines.append(summary(rows["error"]))
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
    numbers = [name for name in ("measured", "predicted", "at_least", "at_most") if name in rows]
    table = worst[["line", *groups, *numbers]].copy()
    for name in numbers:
        table[name] = table[name].map("{:.6g}".format)
    table["error"] = (100 * worst["error"]).map("{:+.1f} %".format)
    return table.to_string(index=False)
