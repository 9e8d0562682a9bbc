"""CDP's figure 3: what training with each update rule reaches on other samples, over epochs, mean over seeds."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from strata_analysis.figures import style
from strata_analysis.load import INDEX, Results
from strata_analysis.published.cdp import of_experiment

EXPERIMENT = "cdp_digits"
WINDOW_EPOCHS = 7.0  # over which the paper's curves are means


def draw(results: Results, points: pd.DataFrame) -> dict[str, Figure] | str:
    """gids: `accuracy/<strategy>` on means of the last WINDOW_EPOCHS, `evaluated/<strategy>` on what they are of."""
    members = of_experiment(points, EXPERIMENT)
    if results.evaluations is None or members.empty:
        return "no point of it was evaluated: evaluate.every"
    rows = members[[*INDEX, "strategy_name", "model_name"]].merge(results.evaluations, on=INDEX)
    if rows.empty:
        return "no point of it was evaluated: evaluate.every"
    figure, axes = pyplot.subplots(figsize=(style.COLUMN_INCHES, style.HEIGHT_INCHES))
    for strategy, own in rows.groupby("strategy_name"):
        curve = over_epochs(own)
        seeds = own["point"].nunique()
        colour = style.colour(strategy)
        axes.plot(curve["epoch"], curve["top_1"], ":", color=colour, linewidth=0.6, gid=f"evaluated/{strategy}")
        label = f"{strategy}, {seeds} {'seed' if seeds == 1 else 'seeds'}"
        axes.plot(curve["epoch"], curve["mean"], color=colour, label=label, gid=f"accuracy/{strategy}")
        axes.fill_between(
            curve["epoch"],
            curve["mean"] - curve["deviation"],
            curve["mean"] + curve["deviation"],
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
    axes.set_xlabel("epoch")
    axes.set_ylabel("top-1, %")
    axes.set_title(
        f"CDP figure 3: {rows['model_name'].iloc[0]}\nmean of the last {WINDOW_EPOCHS:.0f} epochs, ± 1 deviation",
        fontsize=7,
    )
    axes.legend()
    return {"accuracy": figure}


def over_epochs(rows: pd.DataFrame) -> pd.DataFrame:
    """One row an epoch that was evaluated: over seeds (points) the mean of top_1, in %, and the mean and the standard
    deviation of its mean over the last WINDOW_EPOCHS (NaN of one seed)."""
    curves = []
    for _, own in rows.sort_values("epoch").groupby("point"):
        epochs, top_1 = own["epoch"].to_numpy(), 100.0 * own["top_1"].to_numpy()
        late = [top_1[(epochs <= e) & (epochs > e - WINDOW_EPOCHS)].mean() for e in epochs]
        curves.append(pd.DataFrame({"epoch": epochs, "top_1": top_1, "late": late}))
    by_epoch = pd.concat(curves).groupby("epoch")
    late = by_epoch["late"]
    return pd.DataFrame(
        {"top_1": by_epoch["top_1"].mean(), "mean": late.mean(), "deviation": late.std(ddof=1)}
    ).reset_index()
