"""AMSP's printed numbers beside the points of experiments/amsp/: one function a figure or table, each a Comparison."""

from __future__ import annotations

import tomllib

import numpy as np
import pandas as pd

from strata_analysis.derive import key_column
from strata_analysis.published import (
    Comparison,
    beside,
    ended,
    errors_in_words,
    mean_absolute_error,
    published,
    roles,
    same_ranking,
)
from strata_analysis.published.claims import SETTING, Claim, ranks_as_printed, same_side
from strata_analysis.published.sweeps import Sweeps

MODELS = ("llama-7b", "llama-13b", "llama-30b")
# Overlap levels of table V, least first: (strategy.overlap, strategy.broadcast) -> words.
LEVELS = {
    ("none", "none"): "none",
    ("gather", "none"): "AG/RS",
    ("full", "none"): "AG/RS + AR",
    ("full", "next_forward"): "AG/RS + AR + BC",
}
# What constants of experiments/clusters/a800-ib.toml were fitted to: two rows of figure 11 (the rate of products, a hop
# of a ring) and some of table V (the overhead of a step).
FIT_OF_FIGURE_11 = (
    {"model": "llama-7b", "ranks": 8, "strategy": "amsp"},
    {"model": "llama-7b", "ranks": 1024, "strategy": "zero3"},
)
# One number of figure 13: what a runtime keeps beside the Program.
FIT_OF_FIGURE_13 = ({"model": "llama-30b", "strategy": "zero3", "ranks": 512},)
FIT_OF_TABLE_5 = ({"model": "llama-7b", "overlap": "full", "broadcast": "next_forward"},)


def of_experiment(points: pd.DataFrame, name: str) -> pd.DataFrame:
    """The points of one experiment that ended well, in the words of the data file.

    model, strategy, ranks, micro_batches, overlap, broadcast, factors (p g os; where all are given), mfu, tgs (tokens a
    second and GPU), memory_gib (of the fullest rank: peak of the arena, and what the cluster's runtime keeps beside).
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
            "memory_gib": (ours[["arena_peak_bytes", "outside_arena_peak_bytes"]].sum(axis=1) / 2**30).to_numpy(),
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
    rows = rows.assign(role=roles(rows, FIT_OF_FIGURE_11))
    statements.append(f"Of what is predicted, {errors_in_words(rows[rows['role'] == 'predicted'])}.")
    return Comparison("Figure 11, MFU", rows, statements, digits=3)


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
    rows = rows.assign(role=roles(rows, FIT_OF_FIGURE_13))
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
    rows = rows.assign(strategy=level, role=roles(rows, FIT_OF_TABLE_5))
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
            f"paper / simulated: {', '.join(gains)}; mean absolute error of what is predicted "
            f"{100 * mean_absolute_error(members[members['role'] == 'predicted']):.0f} %."
        )
    rows = rows.drop(columns=["overlap", "broadcast"]).rename(columns={"strategy": "overlap"})
    return Comparison(f"Table V, {value.upper()} on 64 GPUs", rows, statements, digits=0 if value == "tgs" else 2)


def table_5_lines(points: pd.DataFrame) -> Comparison:
    """Seconds a step as slope * M + constant, by least squares over the numbers M of micro-batches: what a micro-batch
    takes, and what a step has once. A row a model and level.
    """
    tokens = published("amsp", "settings").set_index("quantity").loc["sequence length", "value"]
    rows = table_5(points).rows
    found = []
    for (model, level), members in rows.groupby(["model", "overlap"], sort=False):
        lines = {
            who: np.polyfit(members["micro_batches"], members["micro_batches"] * tokens / members[who], 1)
            for who in ("paper", "simulated")
        }
        found.append(
            {"model": model, "overlap": level, "role": members["role"].iloc[0]}
            | {f"{who}, s a micro-batch": float(line[0]) for who, line in lines.items()}
            | {f"{who}, s a step": float(line[1]) for who, line in lines.items()}
        )
    return Comparison("Table V as seconds a micro-batch and seconds a step", pd.DataFrame(found), [], digits=3)


def _ratios(ours: pd.DataFrame, value: str, what: str) -> pd.DataFrame:
    """Rows of `what`, a printed ratio of `strategy` over `over`, beside the ratio of `value`."""
    above = ours[["model", "ranks", "strategy", value]]
    below = above.rename(columns={"strategy": "over", value: "below"})
    both = above.merge(below, on=["model", "ranks"])
    both["ratio"] = both[value] / both["below"]
    return beside(published("amsp", what), both, ["model", "ranks", "strategy", "over"], "ratio")


def of_table_4(points: pd.DataFrame) -> pd.DataFrame:
    """model, gradients (dtype), plan (the printed one), share (of the numbers of GPUs where the planner gives it)."""
    points = points.assign(gradients=key_column(points, "train.gradient_dtype", "fp32"))
    found = []
    for row in published("amsp", "table_4").itertuples():
        for gradients, members in points[points["model_name"] == row.model].groupby("gradients"):
            plans = [_plan_of(text) for text in members["plan_text"]]
            found.append((row.model, gradients, row.plan, plans.count(row.plan) / len(plans)))
    return pd.DataFrame(found, columns=["model", "gradients", "plan", "share"])


def _plan_of(text: str) -> str:
    """p, g and os of a plan's only rule; empty where there is no plan."""
    if not text:
        return ""
    (rule,) = tomllib.loads(text)["operators"]
    return " ".join(rule["state"][state] for state in ("p", "g", "os"))


def table_4(points: pd.DataFrame) -> Comparison:
    shares = of_table_4(points)
    each = [
        beside(published("amsp", "table_4"), members, ["model", "plan"], "share").assign(gradients=gradients)
        for gradients, members in shares.groupby("gradients")
    ]
    rows = pd.concat(each, ignore_index=True)
    return Comparison("Table IV, share of the numbers of GPUs with the printed plan", rows)


COMPARISONS = {
    "amsp_table_4": (table_4,),
    "amsp_figure_11": (figure_11, figure_13),
    "amsp_figure_16": (figure_16,),
    "amsp_table_5": (table_5, table_5_lines),
}

# ------------------------------------------------------------------------------------------------------------- claims

RATE = "rate of bf16 products, to 7B with AMSP on 8 GPUs"
OVERHEAD = "overhead of a step, to 7B with all overlaps in table V"
HOP = "hop of a ring over nodes, to ZeRO-3 of 7B on 1024 GPUs"
FITTED = f"{RATE}; {OVERHEAD}; {HOP}"
FITTED_MEMORY = "what a runtime keeps on a GPU, to ZeRO-3 of 30B on 512 GPUs in figure 13"


def _of_figure_11(sweeps: Sweeps) -> pd.DataFrame:
    return of_experiment(sweeps.points("amsp_figure_11"), "amsp_figure_11")


def _of_table_5(sweeps: Sweeps) -> pd.DataFrame:
    return of_experiment(sweeps.points("amsp_table_5"), "amsp_table_5")


def _over(sweeps: Sweeps) -> pd.DataFrame:
    """AMSP's throughput over MiCS's and ZeRO++'s: the least and the most of three models on 1024 GPUs."""
    ours = _of_figure_11(sweeps)
    tgs = ours[ours["ranks"] == 1024].pivot(index="model", columns="strategy", values="tgs")
    found = []
    for over, columns in (("mics", ["mics"]), ("mics and zeropp", ["mics", "zeropp"])):
        ratios = tgs["amsp"].to_numpy()[:, None] / tgs[columns].to_numpy()
        found += [(over, "least", np.nanmin(ratios)), (over, "most", np.nanmax(ratios))]
    return pd.DataFrame(found, columns=["over", "statistic", "speedup"])


def _drops(sweeps: Sweeps) -> pd.DataFrame:
    ours = _of_figure_11(sweeps)
    mfu = ours.pivot(index=["strategy", "model"], columns="ranks", values="mfu")
    drops = (1.0 - mfu[1024] / mfu[8]).groupby("strategy").agg(mean="mean", most="max")
    return drops.reset_index().melt("strategy", var_name="statistic", value_name="drop")


def _efficient_mics(sweeps: Sweeps) -> pd.DataFrame:
    keys = ["model", "ranks", "strategy"]
    both = of_figure_16(sweeps.points("amsp_figure_16")).merge(
        _of_figure_11(sweeps), on=keys, suffixes=("", "_baseline")
    )
    return both[both["strategy"] == "mics"].assign(speedup=both["tgs"] / both["tgs_baseline"])


def _levels(sweeps: Sweeps) -> pd.DataFrame:
    """TGS with one micro-batch: a row a model, a column a level."""
    ours = _of_table_5(sweeps)
    ours = ours[ours["micro_batches"] == 1]
    level = [LEVELS[key] for key in zip(ours["overlap"], ours["broadcast"], strict=True)]
    return ours.assign(level=level).pivot(index="model", columns="level", values="tgs")


def _overlap_gain(sweeps: Sweeps) -> pd.DataFrame:
    levels = _levels(sweeps)
    return (levels["AG/RS + AR + BC"] / levels["none"]).rename("speedup").reset_index()


def _overlap_loss(sweeps: Sweeps) -> pd.DataFrame:
    of_7b = _levels(sweeps).loc["llama-7b"]
    losses = [
        1.0 - of_7b["AG/RS + AR"] / of_7b["AG/RS + AR + BC"],
        1.0 - of_7b["AG/RS"] / of_7b["AG/RS + AR"],
    ]
    return pd.DataFrame({"without": ["broadcast", "all-reduce"], "loss": losses})


def _plans(sweeps: Sweeps) -> pd.DataFrame:
    """Gradients being bf16, as the paper counts them."""
    shares = of_table_4(sweeps.points("amsp_table_4"))
    return shares[shares["gradients"] == "bf16"]


def _out_of_memory(sweeps: Sweeps) -> pd.DataFrame:
    points = sweeps.points("amsp_figure_11")
    return pd.DataFrame(
        {
            "model": points["model_name"],
            "strategy": points["strategy_name"],
            "ranks": points["num_ranks"],
            "runs_out": [int(ended(point) == "OOM") for _, point in points.iterrows()],
        }
    )


def _model_states(sweeps: Sweeps) -> pd.DataFrame:
    points = sweeps.points("amsp_figure_11").drop_duplicates("model_name")
    per_parameter = published("amsp", "settings").set_index("where").loc["sec. II: bytes a parameter", "value"].sum()
    return pd.DataFrame(
        {"model": points["model_name"], "gigabytes": per_parameter * points["num_parameters"].to_numpy() / 1e9}
    )


def _figure_13_ratios(sweeps: Sweeps) -> pd.DataFrame:
    return _ratios(_of_figure_11(sweeps), "memory_gib", "figure_13_ratio").rename(columns={"simulated": "ratio"})


def _figure_16_ratios(sweeps: Sweeps) -> pd.DataFrame:
    ours = of_figure_16(sweeps.points("amsp_figure_16"))
    return _ratios(ours, "mfu", "figure_16_ratio").rename(columns={"simulated": "ratio"})


ONE_RUNTIME = (
    "What CUDA, NCCL, PyTorch and DeepSpeed keep beside the Program is one number for every system and model, fitted "
    "to ZeRO-3 of 30B on 512 GPUs."
)
TABLE_5 = {
    "ours": _of_table_5,
    "experiments": ("amsp_table_5",),
    "direction": ranks_as_printed("model", "micro_batches"),
    "fitted": FITTED,
    "fitted_to": FIT_OF_TABLE_5,
}
CLAIMS = (
    Claim(
        "figure_11",
        "mfu",
        "simulated",
        _of_figure_11,
        ("amsp_figure_11",),
        direction=ranks_as_printed("model", "ranks"),
        fitted=FITTED,
        fitted_to=FIT_OF_FIGURE_11,
        notes=(
            (
                {"strategy": "mics"},
                "DeepSpeed's MiCS loses a fifth on 8 GPUs already, where ZeRO-1 loses nothing: what its hooks cost its "
                "host between kernels is not simulated.",
            ),
            (
                {"strategy": "amsp", "ranks": 1024},
                "What hidden communication takes from the kernels beside it is not simulated.",
            ),
            (
                {"strategy": "zero3", "ranks": 1024},
                "Printed MFU of ZeRO-3 is the same for 7B and 13B, though 13B has twice the compute to a tensor: more "
                "than a constant hop of a ring is in it.",
            ),
            (
                {"strategy": "zeropp", "ranks": 1024},
                "Forward gathers and scatters of ZeRO++ go over all ranks in rings like ZeRO-3's; the paper's lose "
                "more than the constant hop that was fitted to ZeRO-3.",
            ),
        ),
    ),
    Claim(
        "figure_13",
        "memory_gib",
        "simulated",
        _of_figure_11,
        ("amsp_figure_11",),
        direction=ranks_as_printed("model", "strategy"),
        fitted=FITTED_MEMORY,
        fitted_to=FIT_OF_FIGURE_13,
        notes=(({}, ONE_RUNTIME),),
    ),
    Claim(
        "figure_13_ratio",
        "ratio",
        "simulated",
        _figure_13_ratios,
        ("amsp_figure_11",),
        direction=same_side(1.0),
        fitted=FITTED_MEMORY,
        notes=(({}, ONE_RUNTIME),),
    ),
    Claim(
        "figure_16_ratio",
        "ratio",
        "simulated",
        _figure_16_ratios,
        ("amsp_figure_16",),
        direction=same_side(1.0),
        fitted=FITTED,
        notes=(
            (
                {},
                "Gathers under compute are free in the simulation, and MiCS has most of them; it has no broadcast, "
                "which these figures leave bare.",
            ),
        ),
    ),
    Claim("table_5", "tgs", "simulated", without=("mfu",), **TABLE_5),
    Claim("table_5", "mfu", "simulated", without=("tgs",), **TABLE_5),
    Claim(
        "speedup_1024",
        "speedup",
        "simulated",
        _over,
        ("amsp_figure_11",),
        direction=same_side(1.0),
        fitted=FITTED,
    ),
    Claim(
        "mfu_drop",
        "drop",
        "simulated",
        _drops,
        ("amsp_figure_11",),
        tolerance=0.05,
        is_share=True,
        direction=same_side(0.0),
        fitted=FITTED,
    ),
    Claim(
        "efficient_mics",
        "speedup",
        "simulated",
        _efficient_mics,
        ("amsp_figure_11", "amsp_figure_16"),
        direction=same_side(1.0),
        fitted=FITTED,
        notes=(({}, "DeepSpeed's MiCS is slower than ours with DeepSpeed's overlap: see figure 11."),),
    ),
    Claim(
        "overlap_gain",
        "speedup",
        "simulated",
        _overlap_gain,
        ("amsp_table_5",),
        direction=same_side(1.0),
        fitted=FITTED,
    ),
    Claim(
        "overlap_loss",
        "loss",
        "simulated",
        _overlap_loss,
        ("amsp_table_5",),
        tolerance=0.03,
        is_share=True,
        direction=same_side(0.0),
        fitted=FITTED,
    ),
    Claim(
        "table_4",
        "share",
        "planner",
        _plans,
        ("amsp_table_4",),
        is_share=True,
        fitted=f"{FITTED}; {FITTED_MEMORY}",
        notes=(
            (
                {},
                "With gradients of 2 bytes a parameter, as the paper counts, the planner shards less in the memory "
                "that figure 13 leaves; with 4 it gives the printed plan of 7B on 8 to 512 GPUs, of 13B on 8, 16, 512.",
            ),
        ),
    ),
    Claim(
        "out_of_memory",
        "runs_out",
        "simulated",
        _out_of_memory,
        ("amsp_figure_11",),
        tolerance=0.0,
        is_share=True,
        fitted=FITTED_MEMORY,
        notes=(({}, ONE_RUNTIME),),
    ),
    Claim(
        "model_states",
        "gigabytes",
        "counted",
        _model_states,
        ("amsp_figure_11",),
        tolerance=0.05,
    ),
    SETTING,
)
