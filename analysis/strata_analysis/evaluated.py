"""What training reached on other samples: the table /evaluations, a row a point."""

from __future__ import annotations

import pandas as pd

from strata_analysis.load import INDEX, Results

LAST_EPOCHS = 10.0  # of which Fournier et al. (CDP, sec. 5) take the best


def by_point(results: Results, last_epochs: float = LAST_EPOCHS) -> pd.DataFrame:
    """One row a point with evaluations, of its last attempt that counts.

    Columns: INDEX, model_name, strategy_name, num_ranks, epoch, trained_steps, num_samples, loss, top_1, top_5 of the
    last evaluation, and `best_top_1`, `best_top_5` of those of the last `last_epochs` epochs.
    """
    facts = results.last()[[*INDEX, "model_name", "strategy_name", "num_ranks"]]
    rows = facts.merge(_evaluations(results), on=INDEX)
    found = []
    for _, own in rows.groupby(INDEX, sort=False):
        last = own.sort_values("trained_steps").iloc[-1]
        late = own[own["epoch"] > last["epoch"] - last_epochs]
        found.append({**last, "best_top_1": late["top_1"].max(), "best_top_5": late["top_5"].max()})
    return pd.DataFrame(found)


def table(results: Results) -> pd.DataFrame:
    """The same as text, for people; empty where nothing was evaluated."""
    rows = by_point(results)
    if rows.empty:
        return rows
    percent = "{:.2f}".format
    return pd.DataFrame(
        {
            "model": rows["model_name"],
            "strategy": rows["strategy_name"],
            "ranks": rows["num_ranks"],
            "epoch": rows["epoch"].map("{:.2f}".format),
            "loss": rows["loss"].map("{:.4f}".format),
            "top-1, %": (100.0 * rows["top_1"]).map(percent),
            "top-5, %": (100.0 * rows["top_5"]).map(percent),
            f"best top-1 of the last {LAST_EPOCHS:.0f} epochs, %": (100.0 * rows["best_top_1"]).map(percent),
        }
    )


def _evaluations(results: Results) -> pd.DataFrame:
    columns = [*INDEX, "trained_steps", "epoch", "num_samples", "loss", "top_1", "top_5"]
    rows = results.evaluations
    return pd.DataFrame(columns=columns) if rows is None or rows.empty else rows[columns]
