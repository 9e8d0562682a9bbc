"""OSDP's printed speed-ups beside the points of experiments/osdp/: one function a figure, each a Comparison.

Nothing here lists the strategies that there are: a mode that joins an experiment joins its figures and its rows.
"""

from __future__ import annotations

import re
import tomllib

import pandas as pd

from strata_analysis.derive import key_column
from strata_analysis.published import Comparison, beside, ended, published, roles
from strata_analysis.published.claims import SETTING, Claim, ranks_as_printed, same_side
from strata_analysis.published.sweeps import Sweeps
from strata_analysis.series import keys_of

FAMILIES = {"nd": "N&D", "ws": "W&S", "ic": "I&C"}
# As the paper calls them, in its order; any other strategy goes by its own name, after these.
NAMES = {
    "ddp": "PyTorch DDP",
    "gpipe": "GPipe",
    "megatron": "Megatron-LM",
    "zero3": "FSDP",
    "osdp-base": "OSDP-base",
    "osdp": "OSDP",
    "osdp-search": "OSDP's own search",
    "osdp-sdp": "OSDP with SDP",
    "3d": "DeepSpeed 3D",
    "3d+osdp": "3D+OSDP",
}
# OSDP with an option that is not its default, a bar of its own and no baseline: what the paper's search finds, where
# our planner compares plans by simulation; and SDP for what is not ZDP, as in the authors' code.
VARIANTS = {"osdp-search": ("strategy.choice", "search"), "osdp-sdp": ("strategy.sdp", "true")}
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
            "strategy": [_strategy(point) for _, point in ours.iterrows()],
            "ended": [ended(point) for _, point in ours.iterrows()],
            "throughput": ours["num_sequences_per_step"] / ours["step_seconds"],
            "batch": ours["num_sequences_per_step"],
            "peak_gib": ours["arena_peak_bytes"] / 2**30,
            "split": [_split(point) for _, point in ours.iterrows()],
        }
    )
    rows["throughput"] = rows["throughput"].where(rows["ended"] == "ok")
    return rows


def _strategy(point: pd.Series) -> str:
    if point["strategy_name"] == "osdp":
        keys = keys_of(point)
        for name, (key, value) in VARIANTS.items():
            if keys.get(key, "").strip('"') == value:
                return name
    return point["strategy_name"]


def cells(points: pd.DataFrame, *experiments: str) -> pd.DataFrame:
    """One row a model, memory limit and strategy, as `tried` has it: its fastest point in any of the experiments, as
    the paper tunes batch sizes and degrees.

    Several points may have failed in several ways: what would run with more memory is OOM.
    """
    rows = pd.concat([tried(points, experiment) for experiment in experiments], ignore_index=True)
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
    return {"pure": PURE, "others": set(rows["strategy"]) - HYBRID - set(VARIANTS)}.get(word, {word})


def beside_printed(printed: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The printed ratios with ours, and of how many pairs of cell and baseline ours are. What is printed of OSDP stands
    beside its variants too."""
    there = [name for name in VARIANTS if name in set(rows["strategy"])]
    of_osdp = printed[printed["strategy"] == "osdp"]
    printed = pd.concat([printed, *(of_osdp.assign(strategy=name) for name in there)], ignore_index=True)
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
    absent = [_name(name) for name in NAMES if name not in {*rows["strategy"], *VARIANTS}]
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


def hybrids_on_8_gpus(points: pd.DataFrame) -> Comparison:
    return _hybrids(points, "Hybrids on 8 GPUs, few layers", {"W&S"}, "osdp_figure_5")


def hybrids_on_16_gpus(points: pd.DataFrame) -> Comparison:
    return _hybrids(points, "Hybrids on 16 GPUs, few layers", {"W&S"}, "osdp_figure_6")


def deep_hybrids_on_8_gpus(points: pd.DataFrame) -> Comparison:
    families = {"N&D", "I&C"}
    return _hybrids(points, "Hybrids on 8 GPUs, many layers", families, "osdp_figure_5", "osdp_figure_5_hybrids")


def deep_hybrids_on_16_gpus(points: pd.DataFrame) -> Comparison:
    families = {"N&D", "I&C"}
    return _hybrids(points, "Hybrids on 16 GPUs, many layers", families, "osdp_figure_6", "osdp_figure_6_hybrids")


def _hybrids(points: pd.DataFrame, title: str, families: set[str], *experiments: str) -> Comparison:
    """Sequences a second with the batch in brackets, a row a cell, of every strategy that runs in any."""
    rows = cells(points, *experiments)
    rows = rows[rows["family"].isin(families) & ~rows["strategy"].isin({"osdp-base", *VARIANTS})]
    ran = [
        name
        for name in dict.fromkeys([*NAMES, *rows["strategy"]])
        if name in set(rows.query("ended == 'ok'")["strategy"])
    ]
    table = []
    for (_, family, limit), of_cell in rows.groupby(CELL, sort=False):
        each = of_cell.set_index("strategy")
        others = each.loc[~each.index.isin(HYBRID), "throughput"].max()
        hybrid, pipeline = (each["throughput"].get(name, float("nan")) for name in ("3d+osdp", "3d"))
        table.append(
            {"limit": f"{limit:g} GiB", "model": f"{family} {each['setting'].iloc[0]}"}
            | {_name(name): _with_batch(each.loc[name]) if name in each.index else "" for name in ran}
            | {"over 3D": hybrid / pipeline, "over the best other": hybrid / others}
        )
    table = pd.DataFrame(table)
    statements = [
        f"3D+OSDP {name}: {_range_in_words(table[name].dropna())}." for name in ("over 3D", "over the best other")
    ]
    return Comparison(
        f"{title}: sequences a second, in brackets the batch", table, statements + endings_in_words(rows)[:1]
    )


def _with_batch(row: pd.Series) -> str:
    return f"{row['throughput']:.2f} ({row['batch']:g})" if row["ended"] == "ok" else row["ended"]


def figure_5_one_sample(points: pd.DataFrame) -> Comparison:
    return _one_sample(points, "5")


def figure_9_one_sample(points: pd.DataFrame) -> Comparison:
    return _one_sample(points, "9")


def figure_5_equal_batch(points: pd.DataFrame) -> Comparison:
    return _equal_batch(points, "figure_5")


def figure_6_equal_batch(points: pd.DataFrame) -> Comparison:
    return _equal_batch(points, "figure_6")


def figure_9_equal_batch(points: pd.DataFrame) -> Comparison:
    return _equal_batch(points, "figure_9")


def _equal_batch(points: pd.DataFrame, figure: str) -> Comparison:
    """The paper compares strategies at one batch: here at the one at which FSDP is fastest."""
    rows = of_equal_batch(points, figure)
    printed = published("osdp", figure)
    statements = []
    in_order = rows.assign(size=rows["model"].map(_size)).sort_values(["limit_gib", "size"], kind="stable")
    for key, of_cell in in_order.groupby(CELL, sort=False):
        ratios = [
            f"{_name(row.strategy)} {row.ratio:.2f}"
            for strategy in ("osdp", *VARIANTS)
            for row in speedups(of_cell, strategy, {"zero3"}).assign(strategy=strategy).itertuples()
        ]
        statements.append(
            f"{key[0]}, {key[2]:g} GiB, {of_cell['batch'].iloc[0]:g} sequences a step: {', '.join(ratios) or '-'}."
        )
    return Comparison(
        f"{figure.replace('_', ' ').capitalize()}'s speed-ups over FSDP, both at FSDP's fastest batch",
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


def of_authors_script(points: pd.DataFrame) -> pd.DataFrame:
    """strategy, throughput (tokens a second of one GPU) and megabytes: a row a strategy."""
    rows = points[points["experiment_name"] == "osdp_authors_script"]
    tokens = rows["num_samples_per_step"] / rows["num_ranks"]
    return pd.DataFrame(
        {
            "strategy": [_strategy(point) for _, point in rows.iterrows()],
            "throughput": tokens / rows["step_seconds"],
            "megabytes": rows["arena_peak_bytes"] / 2**20,
        }
    )


def authors_script(points: pd.DataFrame) -> Comparison:
    ours = of_authors_script(points)
    printed = published("osdp", "authors_script").drop(columns="megabytes")
    theirs = printed.set_index("strategy")["throughput"]
    of_osdp = printed[printed["strategy"] == "osdp"]
    printed = pd.concat([printed, *(of_osdp.assign(strategy=name) for name in VARIANTS)], ignore_index=True)
    simulated = ours.set_index("strategy")["throughput"]
    ratios = [f"{_name(name)} {simulated[name] / simulated['zero3']:.2f}" for name in simulated.drop("zero3").index]
    return Comparison(
        "The authors' script, tokens a second of one GPU",
        beside(printed, ours, ["strategy"], "throughput"),
        [f"Over FSDP: theirs {theirs['osdp'] / theirs['zero3']:.2f}; {', '.join(ratios)}."],
    )


def of_authors_profile(points: pd.DataFrame) -> pd.DataFrame:
    """hold, sequences (a GPU; one stands for none), hidden, seconds: a row a point."""
    rows = points[points["experiment_name"] == "osdp_authors_profile"]
    sequences = rows["num_sequences_per_step"] / rows["num_ranks"]
    return pd.DataFrame(
        {
            "hold": rows["strategy_name"].map({"zero2": "DP", "zero3": "ZDP"}),
            "sequences": sequences.where(sequences > 1, 0).astype(int),
            "hidden": [int(word) for word in key_column(rows, "model.hidden", "1536")],
            "seconds": rows["step_seconds"],
        }
    )


PROFILE_KEYS = ["hold", "sequences", "hidden"]
PROFILE_FITTED_TO = ({"hold": "DP", "sequences": 0},)


def authors_profile(points: pd.DataFrame) -> Comparison:
    """Errors over hidden sizes."""
    printed = published("osdp", "authors_profile")
    rows = beside(printed, of_authors_profile(points), PROFILE_KEYS, "seconds")
    rows = rows.assign(role=roles(rows, PROFILE_FITTED_TO))
    errors = rows.groupby(["hold", "sequences", "role"], sort=False)["error"].agg(["min", "median", "max"])
    words = errors.map(lambda error: f"{100 * error:+.0f} %").reset_index()
    alone = printed[(printed["hold"] == "DP") & (printed["sequences"] == 0)]
    return Comparison(
        "One layer's seconds in the authors' profile, errors over eight hidden sizes",
        words,
        [f"Bandwidth that the fitted ones imply, median: {implied_bandwidth(alone).median() / 1e9:.2f} GB/s."],
    )


def implied_bandwidth(alone: pd.DataFrame, num_ranks: int = 8) -> pd.Series:
    """Bytes a second with which rings of a replicated layer of 12 h^2 parameters in fp32 take the printed seconds."""
    passes = 2 * (num_ranks - 1) / num_ranks
    return passes * 4 * 12 * alone["hidden"] ** 2 / alone["seconds"]


COMPARISONS = {
    "osdp_authors_profile": (authors_profile,),
    "osdp_authors_script": (authors_script,),
    "osdp_figure_5": (figure_5, figure_8, figure_8_split, hybrids_on_8_gpus),
    "osdp_figure_5_equal_batch": (figure_5_equal_batch,),
    "osdp_figure_5_hybrids": (deep_hybrids_on_8_gpus,),
    "osdp_figure_5_one_sample": (figure_5_one_sample,),
    "osdp_figure_6": (figure_6, hybrids_on_16_gpus),
    "osdp_figure_6_equal_batch": (figure_6_equal_batch,),
    "osdp_figure_6_hybrids": (deep_hybrids_on_16_gpus,),
    "osdp_figure_7_simulated": (figure_7,),
    "osdp_figure_9": (figure_9,),
    "osdp_figure_9_equal_batch": (figure_9_equal_batch,),
    "osdp_figure_9_one_sample": (figure_9_one_sample,),
}
# Experiments whose points the comparisons of one look at as well.
BESIDE = {
    "osdp_figure_5_hybrids": ("osdp_figure_5",),
    "osdp_figure_6_equal_batch": ("osdp_figure_6",),
    "osdp_figure_6_hybrids": ("osdp_figure_6",),
    "osdp_figure_9": ("osdp_figure_5",),
    "osdp_figure_9_equal_batch": ("osdp_figure_9",),
}

# ------------------------------------------------------------------------------------------------------------- claims

BEST_BATCH = (
    "Each strategy has the fastest of the batches that fit; the paper does not say which batch it gave the baselines."
)
EQUAL_BATCH = "Over FSDP: both at FSDP's fastest batch, which leaves OSDP little memory to hold whole what FSDP shards."
FIGURES = {
    "figure_5": ("osdp_figure_5",),
    "figure_6": ("osdp_figure_6",),
    "figure_8": ("osdp_figure_5",),
    "figure_9": ("osdp_figure_9",),
}
AT_EQUAL_BATCH = {
    "figure_5": ("osdp_figure_5_equal_batch",),
    "figure_6": ("osdp_figure_6", "osdp_figure_6_equal_batch"),
    "figure_9": ("osdp_figure_9", "osdp_figure_9_equal_batch"),
}
BOTH = ("osdp_figure_5", "osdp_figure_6")


def _of_figures(sweeps: Sweeps, experiments: tuple[str, ...]) -> list[pd.DataFrame]:
    return [cells(sweeps.points(name), name) for name in experiments]


def of_equal_batch(points: pd.DataFrame, figure: str) -> pd.DataFrame:
    """Of the points of AT_EQUAL_BATCH: `at_equal_batch` of a figure."""
    return at_equal_batch(pd.concat([tried(points, name) for name in AT_EQUAL_BATCH[figure]], ignore_index=True))


def _speedup_claim(what: str, experiments: tuple[str, ...], *notes: tuple[dict, str]) -> Claim:
    """What is printed of OSDP over FSDP is judged at equal batch, as the paper compares the two; what they have with
    the best batch of each, and what the plan of the paper's own search has, stand beside it."""
    equal = AT_EQUAL_BATCH.get(what, ())

    def ours(sweeps: Sweeps) -> pd.DataFrame:
        printed = published("osdp", what)
        best = with_variants(printed, _of_figures(sweeps, experiments))
        if not equal:
            return best
        over_fsdp = best["over"] == "zero3"
        headline = with_variants(printed[printed["over"] == "zero3"], [of_equal_batch(sweeps.points(*equal), what)])
        headline["also"] += [
            f" Each at its best batch: {second.ratio:.2f}. {second.also}" for second in best[over_fsdp].itertuples()
        ]
        return pd.concat([headline, best[~over_fsdp]], ignore_index=True)

    at_equal_batch = (({"over": "zero3"}, EQUAL_BATCH),) if equal else ()
    return Claim(
        what,
        "ratio",
        "simulated",
        ours,
        tuple(dict.fromkeys((*experiments, *equal))),
        direction=same_side(1.0),
        notes=(*at_equal_batch, *notes, ({}, BEST_BATCH)),
    )


def with_variants(printed: pd.DataFrame, figures: list[pd.DataFrame]) -> pd.DataFrame:
    """`ratios_of`, and in a column `also` what the variants of OSDP have where OSDP's number is printed."""
    rows = ratios_of(printed, figures)
    words = [[] for _ in range(len(rows))]
    for name in VARIANTS:
        theirs = ratios_of(printed.assign(strategy=printed["strategy"].replace("osdp", name)), figures)
        for of_row, strategy, ratio in zip(words, rows["strategy"], theirs["ratio"], strict=True):
            if strategy == "osdp" and pd.notna(ratio):
                of_row.append(f"{_name(name)}: {ratio:.2f}.")
    return rows.assign(also=[" ".join(of_row) for of_row in words])


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


def _authors_script(sweeps: Sweeps) -> pd.DataFrame:
    """Beside the authors' OSDP stand ours, and the plans of its variants."""
    rows = of_authors_script(sweeps.points("osdp_authors_script")).set_index("strategy")
    beside_it = [f"{_name(name)}: {rows.loc[name, 'throughput']:.1f} tokens a second of one GPU." for name in VARIANTS]
    return rows.assign(also=[" ".join(beside_it) if name == "osdp" else "" for name in rows.index]).reset_index()


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
        "authors_script",
        "throughput",
        "simulated",
        _authors_script,
        ("osdp_authors_script",),
        without=("megabytes",),
        direction=ranks_as_printed(),
        fitted="bandwidth to the authors' profile of a layer",
    ),
    Claim(
        "authors_script",
        "megabytes",
        "simulated",
        lambda sweeps: of_authors_script(sweeps.points("osdp_authors_script")),
        ("osdp_authors_script",),
        without=("throughput",),
        direction=ranks_as_printed(),
        notes=(({}, "What PyTorch and NCCL keep is not in ours; the authors' planner takes 800 MB for it."),),
    ),
    Claim(
        "authors_profile",
        "seconds",
        "simulated",
        lambda sweeps: of_authors_profile(sweeps.points("osdp_authors_profile")),
        ("osdp_authors_profile",),
        direction=ranks_as_printed("sequences", "hidden"),
        fitted="bandwidth to DP without samples",
        fitted_to=PROFILE_FITTED_TO,
        notes=(
            (
                {"hold": "ZDP", "sequences": 0},
                "There a gather of a sharded layer takes longer than half of what its replica takes.",
            ),
        ),
    ),
    Claim(
        "search_time",
        "seconds",
        "planner",
        not_comparable="Seconds of an unnamed processor and of another language; results hold no search's time.",
    ),
    SETTING,
)
