"""AMSP's printed numbers beside the points of experiments/amsp/: one function a figure or table, each a Comparison."""

from __future__ import annotations

import pandas as pd

from strata_analysis.derive import key_column
from strata_analysis.published import (
    Comparison,
    beside,
    errors_in_words,
    mean_absolute_error,
    published,
    same_ranking,
)

MODELS = ("llama-7b", "llama-13b", "llama-30b")
# Overlap levels of table V, least first: (strategy.overlap, strategy.broadcast) -> words.
LEVELS = {
    ("none", "none"): "none",
    ("gather", "none"): "AG/RS",
    ("full", "none"): "AG/RS + AR",
    ("full", "next_forward"): "AG/RS + AR + BC",
}


def of_experiment(points: pd.DataFrame, name: str) -> pd.DataFrame:
    """The points of one experiment that ended well, in the words of the data file.

    model, strategy, ranks, micro_batches, overlap, broadcast, factors (p g os; where all are given), mfu, tgs (tokens a
    second and GPU), memory_gib (peak of the arena of the fullest rank).
    """
    ours = points[(points["experiment_name"] == name) & (points["status"] == "ok")]
    states = zip(*(key_column(ours, f"strategy.{state}", "planner") for state in ("p", "g", "os")), strict=True)
    return pd.DataFrame(
        {
            "point": ours["point"].to_numpy(),
            "model": ours["model_name"].to_numpy(),
            "strategy": ours["strategy_name"].to_numpy(),
            "ranks": ours["num_ranks"].to_numpy(),
            "micro_batches": [int(word) for word in key_column(ours, "train.micro_batches", "1")],
            "overlap": key_column(ours, "strategy.overlap", "full"),
            "broadcast": key_column(ours, "strategy.broadcast", "none"),
            "factors": [" ".join(factors) for factors in states],
            "mfu": ours["mfu"].to_numpy(),
            "tgs": (ours["samples_per_second"] / ours["num_ranks"]).to_numpy(),
            "memory_gib": (ours["arena_peak_bytes"] / 2**30).to_numpy(),
        }
    )


def of_figure_16(points: pd.DataFrame) -> pd.DataFrame:
    """As of_experiment; in the one engine, `strategy` says whose factors: MiCS has the same for all three states."""
    ours = of_experiment(points, "amsp_figure_16")
    equal = [len(set(factors.split())) == 1 for factors in ours["factors"]]
    return ours.assign(strategy=["mics" if same else "amsp" for same in equal])


def figure_11(points: pd.DataFrame) -> Comparison:
    rows = beside(
        published("amsp", "figure_11"), of_experiment(points, "amsp_figure_11"), ["model", "ranks", "strategy"], "mfu"
    )
    statements = []
    for (model, ranks), members in rows.groupby(["model", "ranks"], sort=False):
        if len(members) > 1 and members["paper"].nunique() > 1:
            statements.append(f"{model} on {ranks} GPUs: {ranking_in_words(members)}.")
    for model, members in rows[rows["ranks"] == 1024].groupby("model", sort=False):
        by_strategy = members.set_index("strategy")
        ratios = by_strategy.loc["amsp", ["paper", "simulated"]] / by_strategy[["paper", "simulated"]]
        words = [
            f"{strategy} {ratio['paper']:.2f} / {ratio['simulated']:.2f}"
            for strategy, ratio in ratios.iterrows()
            if strategy != "amsp"
        ]
        statements.append(f"{model} on 1024 GPUs, AMSP over others, paper / simulated: {', '.join(words)}.")
    statements.append(f"{errors_in_words(rows)}.")
    return Comparison("Figure 11, MFU", rows, statements)


def ranking_in_words(rows: pd.DataFrame) -> str:
    """Best first. What the paper prints as equal may stand either way."""
    if rows["simulated"].isna().any():
        return "not all simulated"
    order = " > ".join(rows.sort_values("simulated", ascending=False)["strategy"])
    return f"{'same ranking' if same_ranking(rows) else 'another ranking'} ({order})"


def figure_13(points: pd.DataFrame) -> Comparison:
    ours = of_experiment(points, "amsp_figure_11")
    printed = published("amsp", "figure_13")
    rows = beside(printed, ours, ["model", "ranks", "strategy"], "memory_gib")
    ratios = _ratios(ours, "memory_gib", "figure_13_ratio")
    statements = [
        f"{row.model} on {row.ranks} GPUs, peak of {row.strategy} over {row.over}: paper {row.paper:.1f}, "
        f"simulated {row.simulated:.2f}."
        for row in ratios.itertuples(index=False)
    ]
    return Comparison("Figure 13, peak memory in GiB", rows, statements, digits=1)


def figure_16(points: pd.DataFrame) -> Comparison:
    rows = _ratios(of_figure_16(points), "mfu", "figure_16_ratio")
    above = bool((rows["simulated"] > 1.0).all())
    statements = [
        "AMSP's factors are ahead of MiCS's in every printed case."
        if above
        else "AMSP's factors are not ahead of MiCS's in every printed case.",
        f"Mean absolute error {100 * mean_absolute_error(rows):.0f} %.",
    ]
    return Comparison("Figure 16, MFU with AMSP's factors over MFU with MiCS's, one engine", rows, statements)


def table_5(points: pd.DataFrame, value: str = "tgs") -> Comparison:
    on = ["model", "overlap", "broadcast", "micro_batches"]
    printed = published("amsp", "table_5").drop(columns="mfu" if value == "tgs" else "tgs")
    rows = beside(printed, of_experiment(points, "amsp_table_5"), on, value)
    level = [LEVELS[key] for key in zip(rows["overlap"], rows["broadcast"], strict=True)]
    rows = rows.assign(strategy=level)
    statements = []
    for model, members in rows.groupby("model", sort=False):
        columns = [same_ranking(column) for _, column in members.groupby("micro_batches")]
        gains = []
        for count, column in members.groupby("micro_batches"):
            by_level = column.set_index("strategy")[["paper", "simulated"]]
            gain = by_level.loc["AG/RS + AR + BC"] / by_level.loc["none"]
            gains.append(f"M={count} {gain['paper']:.2f} / {gain['simulated']:.2f}")
        statements.append(
            f"{model}: same ranking of levels in {sum(columns)} of {len(columns)} columns; all overlaps over none, "
            f"paper / simulated: {', '.join(gains)}; mean absolute error {100 * mean_absolute_error(members):.0f} %."
        )
    rows = rows.drop(columns=["overlap", "broadcast"]).rename(columns={"strategy": "overlap"})
    return Comparison(f"Table V, {value.upper()} on 64 GPUs", rows, statements, digits=0 if value == "tgs" else 2)


def _ratios(ours: pd.DataFrame, value: str, what: str) -> pd.DataFrame:
    """Rows of `what`, a printed ratio of `strategy` over `over`, beside the ratio of `value`."""
    above = ours[["model", "ranks", "strategy", value]]
    below = above.rename(columns={"strategy": "over", value: "below"})
    both = above.merge(below, on=["model", "ranks"])
    both["ratio"] = both[value] / both["below"]
    return beside(published("amsp", what), both, ["model", "ranks", "strategy", "over"], "ratio")


COMPARISONS = {
    "amsp_figure_11": (figure_11, figure_13),
    "amsp_figure_16": (figure_16,),
    "amsp_table_5": (table_5,),
}
