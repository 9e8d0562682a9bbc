"""OSDP's printed speed-ups beside the points of experiments/osdp/: one function a figure, each a Comparison.

Nothing here lists the strategies that there are: a mode that joins an experiment joins its figures and its rows.
"""

from __future__ import annotations

import re
import tomllib

import pandas as pd

from strata_analysis.derive import key_column
from strata_analysis.published import Comparison, beside, ended, published
from strata_analysis.published.claims import SETTING, Claim, same_side
from strata_analysis.published.sweeps import Sweeps

FAMILIES = {"nd": "N&D", "ws": "W&S", "ic": "I&C"}
# As the paper calls them, in its order; any other strategy goes by its own name, after these.
NAMES = {
    "ddp": "PyTorch DDP",
    "gpipe": "GPipe",
    "megatron": "Megatron-LM",
    "zero3": "FSDP",
    "osdp-base": "OSDP-base",
    "osdp": "OSDP",
    "3d": "DeepSpeed 3D",
    "3d+osdp": "3D+OSDP",
}
PURE = {"ddp", "gpipe", "megatron", "zero3"}
HYBRID = {"3d", "3d+osdp"}
EQUAL = 0.001  # no difference between two throughputs
CELL = ["model", "family", "limit_gib"]


def tried(points: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row a point of the experiment.

    model, family, setting (as on the paper's axis), limit_gib, strategy, ended ("ok", "OOM", "N/A"), throughput
    (sequences a second; NaN where it did not end well), batch (sequences a step), peak_gib, split (share of the
    operators in slices; NaN but for OSDP's modes).
    """
    ours = points[points["experiment_name"] == experiment]
    rows = pd.DataFrame(
        {
            "model": ours["model_name"],
            "family": [FAMILIES[name.split("-")[1]] for name in ours["model_name"]],
            "setting": [name.split("-", 2)[2].replace("x", "\N{MULTIPLICATION SIGN}") for name in ours["model_name"]],
            "limit_gib": [float(word) for word in key_column(ours, "resources.memory_gib", "0")],
            "strategy": ours["strategy_name"],
            "ended": [ended(point) for _, point in ours.iterrows()],
            "throughput": ours["num_sequences_per_step"] / ours["step_seconds"],
            "batch": ours["num_sequences_per_step"],
            "peak_gib": ours["arena_peak_bytes"] / 2**30,
            "split": [_split(point) for _, point in ours.iterrows()],
        }
    )
    rows["throughput"] = rows["throughput"].where(rows["ended"] == "ok")
    return rows


def cells(points: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row a model, memory limit and strategy, as `tried` has it: its fastest point, as the paper tunes batch sizes
    and degrees.

    Several points may have failed in several ways: what would run with more memory is OOM.
    """
    rows = tried(points, experiment)
    rows["rank"] = rows["ended"].map({"ok": 0, "OOM": 1, "N/A": 2})
    rows = rows.sort_values(["rank", "throughput"], ascending=[True, False], kind="stable")
    best = rows.drop_duplicates([*CELL, "strategy"]).drop(columns="rank")
    order = {name: place for place, name in enumerate([*NAMES, *sorted(set(best["strategy"]) - set(NAMES))])}
    best = best.assign(order=best["strategy"].map(order), size=best["model"].map(_size))
    return best.sort_values(["limit_gib", "size", "order"]).drop(columns=["order", "size"]).reset_index(drop=True)


def _size(model: str) -> tuple[int, ...]:
    """Families in the paper's order; then by layers and hidden size."""
    family, setting = model.split("-")[1:]
    return (list(FAMILIES).index(family), *(int(word) for word in setting.split("x")))


def _split(point: pd.Series) -> float:
    """From the line of the plan's frontier that was chosen."""
    if not point["plan_text"]:
        return float("nan")
    plan = tomllib.loads(point["plan_text"])
    for line in plan.get("why", {}).get("frontier", ()):
        found = re.match(r"b = (\d+): .* of (\d+) operators ZDP, (\d+) in slices", line)
        if found and int(found[1]) * point["num_ranks"] == point["num_sequences_per_step"]:
            return int(found[3]) / int(found[2])
    return float("nan")


def at_equal_batch(rows: pd.DataFrame, baseline: str = "zero3") -> pd.DataFrame:
    """A row a CELL in which the baseline runs: every strategy at the batch at which the baseline is fastest, as `cells`
    has it.

    @param rows as `tried` gives them; of several points of one strategy and batch the fastest."""
    rows = rows.reset_index(drop=True)
    good = rows[(rows["ended"] == "ok") & (rows["strategy"] == baseline)]
    batches = good.loc[good.groupby(CELL, sort=False)["throughput"].idxmax(), [*CELL, "batch"]]
    there = rows.merge(batches, on=[*CELL, "batch"])
    order = there["ended"].map({"ok": 0, "OOM": 1, "N/A": 2})
    there = there.assign(order=order).sort_values(["order", "throughput"], ascending=[True, False], kind="stable")
    return there.drop_duplicates([*CELL, "strategy"]).drop(columns="order").reset_index(drop=True)


def speedups(rows: pd.DataFrame, strategy: str, over: set[str]) -> pd.DataFrame:
    """`rows` as `cells` gives them; a row a cell and baseline, CELL, over and ratio, where both ended well."""
    good = rows[rows["ended"] == "ok"]
    above = good.loc[good["strategy"] == strategy, [*CELL, "throughput"]]
    below = good.loc[good["strategy"].isin(over - {strategy}), [*CELL, "strategy", "throughput"]]
    both = above.merge(below.rename(columns={"strategy": "over", "throughput": "below"}), on=CELL)
    return both.assign(ratio=both["throughput"] / both["below"]).drop(columns=["throughput", "below"])


def _baselines(word: str, rows: pd.DataFrame) -> set[str]:
    return {"pure": PURE, "others": set(rows["strategy"]) - HYBRID}.get(word, {word})


def beside_printed(printed: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The printed ratios with ours, and of how many pairs of cell and baseline ours are."""
    ours = ratios_of(printed, [rows])
    on = ["family", "strategy", "over", "statistic"]
    return beside(printed, ours, on, "ratio").merge(ours[[*on, "pairs"]], on=on)


def ratios_of(printed: pd.DataFrame, figures: list[pd.DataFrame]) -> pd.DataFrame:
    """Of each printed ratio its columns family, strategy, over and statistic, with ours and pairs.

    @param figures rows of `cells`, a frame a figure.
    """
    found = []
    for row in printed.itertuples(index=False):
        each = [speedups(rows, row.strategy, _baselines(row.over, rows)) for rows in figures]
        ratios = pd.concat(each, ignore_index=True)
        if row.family != "all":
            ratios = ratios[ratios["family"] == row.family]
        found.append(
            (row.family, row.strategy, row.over, row.statistic, ratios["ratio"].agg(row.statistic), len(ratios))
        )
    return pd.DataFrame(found, columns=["family", "strategy", "over", "statistic", "ratio", "pairs"])


def endings_in_words(rows: pd.DataFrame) -> list[str]:
    """Who is first where, and what did not run."""
    words = []
    good = rows[rows["ended"] == "ok"]
    num_cells = len(rows[CELL].drop_duplicates())
    best = good.groupby(CELL)["throughput"].transform("max")
    first = good.loc[good["throughput"] > (1.0 - EQUAL) * best, "strategy"].value_counts()
    words.append(
        f"First, or within {100 * EQUAL:.1f} % of it, in the "
        f"{good.groupby(CELL).ngroups} cells of {num_cells} where anything runs: "
        + ", ".join(f"{_name(name)} {count}" for name, count in first.items())
        + "."
    )
    for word in ("OOM", "N/A"):
        count = rows.loc[rows["ended"] == word, "strategy"].value_counts(sort=False)
        if len(count):
            words.append(f"{word}: " + ", ".join(f"{_name(name)} {count[name]}" for name in count.index) + " cells.")
    absent = [_name(name) for name in NAMES if name not in set(rows["strategy"])]
    if absent:
        words.append(f"Not simulated: {', '.join(absent)}.")
    return words


def _name(strategy: str) -> str:
    return NAMES.get(strategy, strategy)


def figure_5(points: pd.DataFrame) -> Comparison:
    return _end_to_end(points, "osdp_figure_5", "figure_5", "Figure 5, throughput on 8 GPUs over that of baselines")


def figure_6(points: pd.DataFrame) -> Comparison:
    return _end_to_end(points, "osdp_figure_6", "figure_6", "Figure 6, throughput on 16 GPUs over that of baselines")


def _end_to_end(points: pd.DataFrame, experiment: str, what: str, title: str) -> Comparison:
    rows = cells(points, experiment)
    printed = pd.concat([published("osdp", what), published("osdp", "hybrid")], ignore_index=True)
    return Comparison(title, beside_printed(printed, rows), endings_in_words(rows))


def figure_5_one_sample(points: pd.DataFrame) -> Comparison:
    return _one_sample(points, "5")


def figure_9_one_sample(points: pd.DataFrame) -> Comparison:
    return _one_sample(points, "9")


def figure_5_equal_batch(points: pd.DataFrame) -> Comparison:
    return _equal_batch(points, "5")


def _equal_batch(points: pd.DataFrame, figure: str) -> Comparison:
    """The paper compares strategies at one batch: here at the one at which FSDP is fastest."""
    rows = at_equal_batch(tried(points, f"osdp_figure_{figure}_equal_batch"))
    printed = published("osdp", f"figure_{figure}")
    statements = [
        f"{row.model}, {row.limit_gib:g} GiB, {row.batch:g} sequences a step: {row.ratio:.2f}."
        for row in speedups(rows, "osdp", {"zero3"})
        .merge(rows.loc[rows["strategy"] == "osdp", [*CELL, "batch"]], on=CELL)
        .itertuples()
    ]
    return Comparison(
        f"Figure {figure}'s speed-ups over FSDP, both at FSDP's fastest batch",
        beside_printed(printed[printed["over"] == "zero3"], rows),
        statements,
    )


def _one_sample(points: pd.DataFrame, figure: str) -> Comparison:
    rows = cells(points, f"osdp_figure_{figure}_one_sample")
    printed = published("osdp", f"figure_{figure}")
    statements = []
    for family, members in speedups(rows, "osdp", {"zero3"}).groupby("family", sort=False):
        statements.append(f"{family}: OSDP over FSDP {_range_in_words(members['ratio'])}.")
    return Comparison(
        f"Figure {figure}'s speed-ups over FSDP, at one sample a GPU",
        beside_printed(printed[printed["over"] == "zero3"], rows),
        statements + endings_in_words(rows),
    )


def _range_in_words(ratios: pd.Series) -> str:
    return f"mean {ratios.mean():.2f}, {ratios.min():.2f} to {ratios.max():.2f} in {len(ratios)} cells"


def of_figure_7(points: pd.DataFrame) -> pd.DataFrame:
    """hidden, slices, ended, milliseconds, peak_mib, saved (of the peak without slices): a row a point."""
    ours = points[points["experiment_name"] == "osdp_figure_7_simulated"]
    rows = pd.DataFrame(
        {
            "hidden": [int(word.strip("[]").split(",")[1]) for word in key_column(ours, "model.widths", "")],
            "slices": [int(word) for word in key_column(ours, "strategy.slices", "0")],
            "ended": [ended(point) for _, point in ours.iterrows()],
            "milliseconds": 1e3 * ours["step_seconds"],
            "peak_mib": ours["arena_peak_bytes"] / 2**20,
        }
    )
    whole = rows[rows["slices"] == 0].set_index("hidden")
    rows["saved"] = 1.0 - rows["peak_mib"] / rows["hidden"].map(whole["peak_mib"])
    rows["slowdown"] = rows["milliseconds"] / rows["hidden"].map(whole["milliseconds"])
    return rows.sort_values(["hidden", "slices"]).reset_index(drop=True)


def figure_7(points: pd.DataFrame) -> Comparison:
    ours = of_figure_7(points)
    rows = beside(
        published("osdp", "figure_7"),
        pd.DataFrame({"statistic": ["max"], "saved": [ours["saved"].max()]}),
        ["statistic"],
        "saved",
    )
    statements = []
    for hidden, of_size in ours[ours["slices"] > 0].groupby("hidden"):
        saved = ", ".join(f"{row.slices}: {100 * row.saved:.0f} %" for row in of_size.itertuples())
        slower = ", ".join(f"{100 * (row.slowdown - 1.0):+.1f} %" for row in of_size.itertuples())
        statements.append(f"Hidden size {hidden}, slices and peak memory saved: {saved}; time {slower}.")
    return Comparison("Figure 7, share of the peak memory of one operator that slices save", rows, statements)


def figure_8(points: pd.DataFrame) -> Comparison:
    rows = cells(points, "osdp_figure_5")
    return Comparison(
        "Figure 8, throughput with slices over that without", beside_printed(published("osdp", "figure_8"), rows)
    )


def figure_8_split(points: pd.DataFrame) -> Comparison:
    rows = cells(points, "osdp_figure_5")
    ours = (
        rows[(rows["strategy"] == "osdp") & (rows["ended"] == "ok")].groupby("family", as_index=False)["split"].mean()
    )
    return Comparison(
        "Figure 8, share of the operators that are cut into slices, mean of the cells",
        beside(published("osdp", "figure_8_split"), ours.rename(columns={"split": "share"}), ["family"], "share"),
    )


def figure_9(points: pd.DataFrame) -> Comparison:
    rows = cells(points, "osdp_figure_9")
    statements = endings_in_words(rows)
    without = cells(points, "osdp_figure_5")
    gains = rows.merge(without, on=[*CELL, "strategy"], suffixes=("", "_without"))
    gains["ratio"] = gains["throughput"] / gains["throughput_without"]
    for strategy, members in gains[gains["ratio"].notna()].groupby("strategy", sort=False):
        statements.append(f"{_name(strategy)} with checkpointing over without: {_range_in_words(members['ratio'])}.")
    return Comparison(
        "Figure 9, throughput with checkpointing over that of FSDP with checkpointing",
        beside_printed(published("osdp", "figure_9"), rows),
        statements,
    )


COMPARISONS = {
    "osdp_figure_5": (figure_5, figure_8, figure_8_split),
    "osdp_figure_5_equal_batch": (figure_5_equal_batch,),
    "osdp_figure_5_one_sample": (figure_5_one_sample,),
    "osdp_figure_6": (figure_6,),
    "osdp_figure_7_simulated": (figure_7,),
    "osdp_figure_9": (figure_9,),
    "osdp_figure_9_one_sample": (figure_9_one_sample,),
}

# ------------------------------------------------------------------------------------------------------------- claims

BEST_BATCH = (
    "Each strategy has the fastest of the batches that fit; the paper does not say which batch it gave the baselines."
)
FIGURES = {
    "figure_5": ("osdp_figure_5",),
    "figure_6": ("osdp_figure_6",),
    "figure_8": ("osdp_figure_5",),
    "figure_9": ("osdp_figure_9",),
}
BOTH = ("osdp_figure_5", "osdp_figure_6")


def _of_figures(sweeps: Sweeps, experiments: tuple[str, ...]) -> list[pd.DataFrame]:
    return [cells(sweeps.points(name), name) for name in experiments]


def _speedup_claim(what: str, experiments: tuple[str, ...], *notes: tuple[dict, str]) -> Claim:
    def ours(sweeps: Sweeps) -> pd.DataFrame:
        return ratios_of(published("osdp", what), _of_figures(sweeps, experiments))

    return Claim(
        what,
        "ratio",
        "simulated",
        ours,
        experiments,
        direction=same_side(1.0),
        notes=(*notes, ({}, BEST_BATCH)),
    )


def _fastest(sweeps: Sweeps) -> pd.DataFrame:
    """The share of the cells where anything runs in which 3D+OSDP is the fastest or its equal."""
    first, num_cells = 0, 0
    for rows in _of_figures(sweeps, BOTH):
        throughput = rows[rows["ended"] == "ok"].pivot(index=CELL, columns="strategy", values="throughput")
        if "3d+osdp" not in throughput:
            return pd.DataFrame({"strategy": [], "share": []})
        throughput = throughput[throughput["3d+osdp"].notna()]
        first += int((throughput["3d+osdp"] > (1.0 - EQUAL) * throughput.max(axis="columns")).sum())
        num_cells += len(throughput)
    return pd.DataFrame({"strategy": ["3d+osdp"], "share": [first / num_cells if num_cells else float("nan")]})


def _slices(sweeps: Sweeps) -> pd.DataFrame:
    (rows,) = _of_figures(sweeps, ("osdp_figure_5",))
    good = rows[(rows["strategy"] == "osdp") & (rows["ended"] == "ok")]
    return good.groupby("family", as_index=False)["split"].mean().rename(columns={"split": "share"})


def _saved(sweeps: Sweeps) -> pd.DataFrame:
    saved = of_figure_7(sweeps.points("osdp_figure_7_simulated"))["saved"].max()
    return pd.DataFrame({"statistic": ["max"], "saved": [saved]})


def _overheads(sweeps: Sweeps) -> pd.DataFrame:
    """Mean over the cells of both: bytes of FSDP over those of DDP, kernels with recomputation over those without."""
    results = sweeps.results("osdp_figure_5")
    sent = [name for name in results.steps if name.endswith("_sent_bytes")]
    bytes_of = results.steps.groupby("point")[sent].mean().sum(axis="columns")
    points = sweeps.points("osdp_figure_5")
    points = points[points["status"] == "ok"].assign(bytes=points["point"].map(bytes_of))
    by_model = points.groupby(["model_name", "strategy_name"])["bytes"].mean().unstack()
    added = {"communication of ZDP": (by_model["zero3"] / by_model["ddp"]).mean() - 1.0}
    compute = [
        sweeps.points(name)
        .query("status == 'ok' and strategy_name == 'zero3'")
        .groupby("model_name")["compute_seconds"]
        .mean()
        for name in ("osdp_figure_9_one_sample", "osdp_figure_5_one_sample")
    ]
    added["computation of checkpointing"] = (compute[0] / compute[1]).mean() - 1.0
    return pd.DataFrame({"of": list(added), "share": list(added.values())})


def _models(sweeps: Sweeps) -> pd.DataFrame:
    points = sweeps.points("osdp_figure_5").drop_duplicates("model_name")
    billions = pd.Series(points["num_parameters"].to_numpy() / 1e9)
    family = [FAMILIES[name.split("-")[1]] for name in points["model_name"]]
    return (
        billions.groupby(family)
        .agg(["min", "max"])
        .rename_axis("family")
        .reset_index()
        .melt("family", var_name="statistic", value_name="billions")
    )


def _largest_product(sweeps: Sweeps) -> pd.DataFrame:
    """Of the widest model: a product from its hidden size to four times as many features."""
    settings = {row.setting for row in cells(sweeps.points("osdp_figure_5"), "osdp_figure_5").itertuples()}
    hidden = max(int(setting.split("\N{MULTIPLICATION SIGN}")[-1]) for setting in settings)
    parameters = 4 * hidden * hidden
    return pd.DataFrame(
        {
            "hidden": hidden,
            "quantity": ["billion parameters", "GiB in fp32"],
            "amount": [parameters / 1e9, 4 * parameters / 2**30],
        }
    )


CLAIMS = (
    *(
        _speedup_claim(
            what,
            experiments,
            (
                {"family": "W&S"},
                "A first sample is dear and what is left of 16 GiB beside 2x12288 is little; what else stood on the "
                "paper's GPUs is not known.",
            ),
        )
        for what, experiments in FIGURES.items()
    ),
    _speedup_claim("hybrid", BOTH),
    _speedup_claim("abstract", BOTH),
    Claim("fastest", "share", "simulated", _fastest, BOTH, tolerance=0.0, is_share=True, direction=same_side(0.5)),
    Claim(
        "figure_7",
        "saved",
        "simulated",
        _saved,
        ("osdp_figure_7_simulated",),
        is_share=True,
        direction=same_side(0.0),
        notes=(
            ({}, "One operator and its input are all there is here; what else stood on the paper's GPUs is not known."),
        ),
    ),
    Claim(
        "figure_8_split",
        "share",
        "planner",
        _slices,
        ("osdp_figure_5",),
        is_share=True,
        direction=same_side(0.0),
        notes=(({}, "Our planner takes slices only where its simulation is faster with them."),),
    ),
    Claim(
        "overheads",
        "share",
        "simulated",
        _overheads,
        ("osdp_figure_5", "osdp_figure_5_one_sample", "osdp_figure_9_one_sample"),
        tolerance=0.05,
        is_share=True,
        direction=same_side(0.0),
    ),
    Claim("largest_product", "amount", "counted", _largest_product, ("osdp_figure_5",), tolerance=0.02),
    Claim(
        "table_1",
        "billions",
        "counted",
        _models,
        ("osdp_figure_5",),
        notes=(({}, "The table prints ranges: which layers and hidden sizes its corners combine is not known."),),
    ),
    Claim(
        "search_time",
        "seconds",
        "planner",
        not_comparable="Seconds of an unnamed processor and of another language; results hold no search's time.",
    ),
    SETTING,
)
