"""AutoDDL's printed savings beside the points of experiments/autoddl/: one function a figure, each a Comparison.

Nothing here lists the strategies that there are: a mode that joins an experiment joins its figures and its rows.
"""

from __future__ import annotations

import math
import tomllib

import pandas as pd

from strata_analysis import layout_searches
from strata_analysis.derive import key_column
from strata_analysis.published import Comparison, beside, ended, published
from strata_analysis.published.claims import SETTING, Claim, ranks_as_printed, same_side
from strata_analysis.published.sweeps import Sweeps
from strata_analysis.series import keys_of

# As the paper calls them, in its order; any other strategy goes by its own name, after these.
BLOCKING = "summa, blocking"  # as the paper's SUMMA runs, which is Optimus'
NAMES = {
    "ddp": "data parallel",
    BLOCKING: "SUMMA, blocking",
    "summa": "SUMMA",
    "megatron": "Megatron",
    "autoddl": "AutoDDL",
}
SECOND_BEST = "second best"
CELL = ["model", "nodes", "devices", "optimizer"]
SECONDS = {"communication": "communication_seconds", "step": "step_seconds"}


def tried(points: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row a point of the experiment, in its order.

    model, nodes, devices (of a node), optimizer, strategy (its name, or BLOCKING), stages (of its pipeline), ended
    ("ok", "OOM", "N/A"), micro_batches, and in seconds step_seconds, communication_seconds and exposed_seconds, the
    part under which nothing is computed; NaN where it did not end well.
    """
    ours = points[points["experiment_name"] == experiment]
    nodes = pd.Series([int(word) for word in key_column(ours, "resources.nodes", "1")], index=ours.index)
    rows = pd.DataFrame(
        {
            "model": ours["model_name"],
            "nodes": nodes,
            "devices": [int(word) for word in key_column(ours, "resources.ranks_per_node", "1")],
            "optimizer": key_column(ours, "train.optimizer", "adamw"),
            "strategy": [
                BLOCKING if "blocking" in panels else name
                for name, panels in zip(ours["strategy_name"], key_column(ours, "strategy.panels", ""), strict=True)
            ],
            "stages": [int(word) for word in key_column(ours, "strategy.stages", "1")],
            "ended": [ended(point) for _, point in ours.iterrows()],
            "micro_batches": [int(word) for word in key_column(ours, "train.micro_batches", "1")],
            "step_seconds": ours["step_seconds"],
            "communication_seconds": ours["communication_seconds"],
            "exposed_seconds": ours["exposed_communication_seconds"],
        }
    )
    good = rows["ended"] == "ok"
    times = ["step_seconds", "communication_seconds", "exposed_seconds"]
    rows[times] = rows[times].where(good)
    return rows


def fastest(rows: pd.DataFrame, of: list[str]) -> pd.DataFrame:
    """The fastest row of `tried` for each value of the columns `of`; where none ended well one says why."""
    order = {name: place for place, name in enumerate([*NAMES, *sorted(set(rows["strategy"]) - set(NAMES))])}
    rows = rows.assign(rank=rows["ended"].map({"ok": 0, "OOM": 1, "N/A": 2}), order=rows["strategy"].map(order))
    rows = rows.sort_values(["rank", "step_seconds"], kind="stable").drop_duplicates(of)
    rows = rows.sort_values(["optimizer", "nodes", "devices", "model", "order", "stages"])
    return rows.drop(columns=["rank", "order"]).reset_index(drop=True)


def cells(points: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row a model, machine, optimizer and strategy, as `tried` has it: its fastest point, as the paper tunes
    micro-batches and stages.
    """
    return fastest(tried(points, experiment), [*CELL, "strategy"])


def savings(rows: pd.DataFrame, over: str) -> pd.DataFrame:
    """What AutoDDL saves: CELL, over (who it was), quantity ("communication", "step") and saved, a share.

    @param rows as `cells` gives them. @param over a strategy, or SECOND_BEST: the fastest of the others.
    """
    good = rows[rows["ended"] == "ok"]
    found = []
    for cell, members in good.groupby(CELL, sort=False):
        ours = members[members["strategy"] == "autoddl"]
        others = members[members["strategy"] != "autoddl"]
        if over != SECOND_BEST:
            others = others[others["strategy"] == over]
        if ours.empty or others.empty:
            continue
        other = others.loc[others["step_seconds"].idxmin()]
        for quantity, column in SECONDS.items():
            saved = 1.0 - ours[column].iloc[0] / other[column]
            found.append((*cell, over, other["strategy"], quantity, saved))
    return pd.DataFrame(found, columns=[*CELL, "over", "it", "quantity", "saved"])


def shares(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a CELL: of the step of the fastest strategy but AutoDDL, `it`, the `share` in which nothing is computed.

    @param rows as `cells` gives them. The paper's strategies communicate while nothing is computed."""
    others = rows[(rows["ended"] == "ok") & (rows["strategy"] != "autoddl")]
    fastest_of_cell = others.loc[others.groupby(CELL, sort=False)["step_seconds"].idxmin()]
    share = fastest_of_cell["exposed_seconds"] / fastest_of_cell["step_seconds"]
    return fastest_of_cell.assign(share=share).rename(columns={"strategy": "it"})[[*CELL, "it", "share"]]


def beside_printed(printed: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The printed savings with ours, a row an optimizer that was simulated; a difference of shares has no error."""
    ours = pd.concat([savings(rows, over) for over in dict.fromkeys(printed["over"])], ignore_index=True)
    on = ["model", "nodes", "devices", "over", "quantity"]
    each = [
        beside(printed[printed["model"].isin(rows["model"])], members, on, "saved").assign(optimizer=optimizer)
        for optimizer, members in ours.groupby("optimizer", sort=False)
    ]
    return pd.concat(each, ignore_index=True).drop(columns="error") if each else printed.iloc[:0]


def order_in_words(rows: pd.DataFrame) -> list[str]:
    """A cell's strategies, fastest first, with seconds a step, communication in brackets and micro-batches."""
    words = []
    for (model, nodes, devices, optimizer), members in rows.groupby(CELL, sort=False):
        good = members[members["ended"] == "ok"].sort_values("step_seconds")
        times = [
            f"{NAMES.get(row.strategy, row.strategy)} {row.step_seconds:.4g} s ({row.communication_seconds:.4g} s, "
            f"{row.micro_batches} micro-batches)"
            for row in good.itertuples()
        ]
        failed = [f"{NAMES.get(row.strategy, row.strategy)} {row.ended}" for row in _failed(members).itertuples()]
        words.append(f"{model}, {nodes} x {devices}, {optimizer}: {', '.join(times + failed)}.")
    return words


def _failed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["ended"] != "ok"]


def figure_9_vgg13(points: pd.DataFrame) -> Comparison:
    return _savings(points, "autoddl_figure_9_vgg13", "figure_9", "Figure 9, what AutoDDL saves: VGG-13 on Piz Daint")


def figure_9_vgg13_shares(points: pd.DataFrame) -> Comparison:
    return _shares(points, "autoddl_figure_9_vgg13")


def figure_9_transformer_shares(points: pd.DataFrame) -> Comparison:
    return _shares(points, "autoddl_figure_9_transformer")


def figure_10_transformer_shares(points: pd.DataFrame) -> Comparison:
    return _shares(points, "autoddl_figure_10_transformer")


def _shares(points: pd.DataFrame, experiment: str) -> Comparison:
    ours = shares(cells(points, experiment))
    printed = published("autoddl", "communication_share")
    on = ["model", "nodes", "devices"]
    each = [
        beside(printed[printed["model"].isin(ours["model"])], members, on, "share")
        .merge(members[[*on, "it"]], on=on, how="left")
        .assign(optimizer=optimizer)
        for optimizer, members in ours.groupby("optimizer", sort=False)
    ]
    return Comparison("Share of communication in the step of the second best", pd.concat(each, ignore_index=True))


def figure_9_data_parallel(points: pd.DataFrame) -> Comparison:
    rows = cells(points, "autoddl_figure_9_vgg13")
    ours = rows.merge(rows.loc[rows["strategy"] == "autoddl", [*CELL, "step_seconds"]], on=CELL, suffixes=("", "_best"))
    ours["ratio"] = ours["step_seconds"] / ours["step_seconds_best"]
    on = ["model", "nodes", "devices", "strategy"]
    return Comparison(
        "Figure 9, data parallelism's step over AutoDDL's",
        beside(published("autoddl", "figure_9_data_parallel"), ours, on, "ratio"),
    )


def figure_9_transformer(points: pd.DataFrame) -> Comparison:
    return _savings(
        points, "autoddl_figure_9_transformer", "figure_9", "Figure 9, what AutoDDL saves: transformers on Piz Daint"
    )


def table_3(points: pd.DataFrame) -> Comparison:
    """Seconds a step of the fastest number of stages, and whether that is the paper's."""
    rows = tried(points, "autoddl_table_3")
    return Comparison(
        "Table 3, seconds a step with the best number of stages",
        seconds_and_stages(published("autoddl", "table_3"), fastest(rows, [*CELL, "strategy"])),
        stages_in_words(fastest(rows, [*CELL, "strategy", "stages"])),
        digits=0,
    )


def seconds_and_stages(printed: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `beside` for seconds, a row an optimizer, with paper_stages, simulated_stages (NaN: nothing ended
    well) and same_stages: "yes", "no", "-".

    @param rows as `cells` gives them.
    """
    on = ["model", "nodes", "devices", "strategy"]
    ours = rows.rename(columns={"step_seconds": "seconds"})
    ours = ours.assign(simulated_stages=ours["stages"].where(ours["ended"] == "ok").astype(float))
    each = [
        beside(printed, members, on, "seconds")
        .merge(members[[*on, "simulated_stages"]], on=on, how="left")
        .assign(optimizer=optimizer)
        for optimizer, members in ours.groupby("optimizer", sort=False)
    ]
    found = pd.concat(each, ignore_index=True).rename(columns={"stages": "paper_stages"})
    same = (found["simulated_stages"] == found["paper_stages"]).map({True: "yes", False: "no"})
    return found.assign(same_stages=same.where(found["simulated_stages"].notna(), "-"))


def table_3_ratio(points: pd.DataFrame) -> Comparison:
    """AutoDDL's seconds over Megatron's, each with its own best number of stages."""
    rows = seconds_and_stages(published("autoddl", "table_3"), cells(points, "autoddl_table_3"))
    return Comparison("Table 3, AutoDDL's step over Megatron's", over_megatron(rows))


def over_megatron(rows: pd.DataFrame) -> pd.DataFrame:
    """The ratios of rows of `seconds_and_stages`, a row CELL: paper, simulated and error."""
    seconds = rows.pivot(index=CELL, columns="strategy", values=["paper", "simulated"])
    ratios = pd.DataFrame(
        {who: seconds[who, "autoddl"] / seconds[who, "megatron"] for who in ("paper", "simulated")}
    ).reset_index()
    return ratios.assign(error=ratios["simulated"] / ratios["paper"] - 1.0)


def stages_in_words(rows: pd.DataFrame) -> list[str]:
    """A line a cell and strategy: what it takes by stages, with the micro-batches of each."""
    words = []
    for (model, nodes, devices, optimizer, strategy), members in rows.groupby([*CELL, "strategy"], sort=False):
        each = [
            f"{row.stages}: {row.step_seconds:.4g} s ({row.micro_batches} micro-batches)"
            if row.ended == "ok"
            else f"{row.stages}: {row.ended}"
            for row in members.sort_values("stages").itertuples()
        ]
        name = NAMES.get(strategy, strategy)
        words.append(f"{model}, {nodes} x {devices}, {optimizer}, {name} by stages: {', '.join(each)}.")
    return words


def figure_10_vgg13(points: pd.DataFrame) -> Comparison:
    return _savings(
        points, "autoddl_figure_10_vgg13", "figure_10", "Figure 10, what AutoDDL saves: VGG-13 on two servers"
    )


def figure_10_transformer(points: pd.DataFrame) -> Comparison:
    return _savings(
        points,
        "autoddl_figure_10_transformer",
        "figure_10",
        "Figure 10, what AutoDDL saves: transformers on two servers",
    )


def _savings(points: pd.DataFrame, experiment: str, what: str, title: str) -> Comparison:
    rows = cells(points, experiment)
    return Comparison(title, beside_printed(published("autoddl", what), rows), order_in_words(rows), digits=3)


def of_figure_4(points: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row a strategy that ended well, most communication first: strategy (as given: its options), platform (nodes x
    devices), simulated (bool), and in seconds a step what the planner predicts (`predicted`) and what it takes
    (`communication`), under computation or not. A strategy whose planner predicts nothing is left out.
    """
    ours = points[(points["experiment_name"] == experiment) & (points["status"] == "ok")]
    rows = pd.DataFrame(
        {
            "strategy": [_with_options(point) for _, point in ours.iterrows()],
            "platform": _machines(ours),
            "simulated": ours["simulated"].astype(bool),
            "predicted": [_predicted(point["plan_text"]) for _, point in ours.iterrows()],
            "communication": ours["communication_seconds"],
        }
    ).dropna(subset=["predicted"])
    return rows.sort_values("communication", ascending=False).reset_index(drop=True)


def _machines(points: pd.DataFrame) -> list[str]:
    nodes, devices = key_column(points, "resources.nodes", "1"), key_column(points, "resources.ranks_per_node", "1")
    return [f"{n} x {d}" for n, d in zip(nodes, devices, strict=True)]


def _with_options(point: pd.Series) -> str:
    """ "megatron tensor=1x4": options of the strategy itself, in the order of their names."""
    options = {key.split(".", 1)[1]: value for key, value in keys_of(point).items() if key.startswith("strategy.")}
    if options.get("search") == '"random"':
        options.setdefault("seed", "1")
    words = [
        f"{key}={value.strip(chr(34))}" for key, value in sorted(options.items()) if key in ("layout", "seed", "tensor")
    ]
    return " ".join([point["strategy_name"], *words])


def _predicted(plan_text: str) -> float:
    why = tomllib.loads(plan_text).get("why", {}) if plan_text else {}
    return why.get("predicted_seconds", float("nan"))


def rank_correlation(rows: pd.DataFrame) -> float:
    """Spearman's, of `predicted` and `communication`: the correlation of their ranks."""
    return float(rows["predicted"].rank().corr(rows["communication"].rank()))


def is_simulated(rows: pd.DataFrame) -> bool:
    """@param rows as of_figure_4() gives them: all of one kind, as those of one experiment are."""
    return bool(rows["simulated"].all())


def figure_4(points: pd.DataFrame) -> Comparison:
    """Of whichever of its experiments the points are. What was not measured is no counterpart of what is printed."""
    (experiment,) = {name for name in points["experiment_name"] if name in FIGURE_4}
    rows = of_figure_4(points, experiment)
    ours = pd.DataFrame({"platform": [rows["platform"].iloc[0]], "rank_correlation": [rank_correlation(rows)]})
    printed = published("autoddl", "figure_4")
    printed = printed[printed["platform"].isin(ours["platform"])]
    if is_simulated(rows):
        printed = printed.iloc[:0]
    words = [
        f"{row.strategy}: predicted {row.predicted:.4g} s, {'simulated' if row.simulated else 'measured'} "
        f"{row.communication:.4g} s."
        for row in rows.itertuples()
    ]
    words.append(f"Rank correlation of {len(rows)} strategies: {ours['rank_correlation'].iloc[0]:.3f}.")
    return Comparison(
        "Consistency of planner and simulator on figure 4's strategies"
        if is_simulated(rows)
        else "Figure 4, communication predicted and measured",
        beside(printed, ours, ["platform"], "rank_correlation"),
        words,
    )


EFFORTS = (100, 300, 1000, 10_000)  # strategies
NEAR = 0.01  # of the optimum


def figure_8(points: pd.DataFrame) -> Comparison:
    """Cost over the optimum by strategies, and when a search is near it. The paper's curves have no numbers."""
    traces = layout_searches.traces(points[points["experiment_name"] == "autoddl_figure_8"])
    rows, statements = [], []
    for nodes, members in traces.groupby("nodes"):
        curves = {
            search: layout_searches.over_seeds(members[members["search"] == search])
            for search in layout_searches.NAMES
            if search in set(members["search"])
        }
        exhaustive = curves.pop("exhaustive", None)
        for effort in EFFORTS:
            by_then = {layout_searches.NAMES[search]: _by_then(curve, effort) for search, curve in curves.items()}
            rows.append({"nodes": nodes, "strategies": effort} | by_then)
        if exhaustive is not None:
            statements += [_near_in_words(nodes, search, curve, exhaustive) for search, curve in curves.items()]
    title = "Figure 8, cost over the optimum, median and 90 % interval over seeds"
    return Comparison(title, pd.DataFrame(rows), statements)


def _by_then(curve: pd.DataFrame, effort: int) -> str:
    found = curve[curve["evaluations"] <= effort]
    if found.empty:
        return "-"
    last = found.iloc[-1]
    return f"{last['median']:.2f} [{last['low']:.2f}, {last['high']:.2f}]"


def _near_in_words(nodes: int, search: str, curve: pd.DataFrame, exhaustive: pd.DataFrame) -> str:
    """When a median is NEAR the optimum, in microseconds, and by how many orders of magnitude earlier than exhaustive
    search, which comes as near in some order of its own."""
    name = layout_searches.NAMES[search]
    ours, theirs = (_seconds_to_near(*of_one) for of_one in ((search, curve), ("exhaustive", exhaustive)))
    if math.isnan(ours):
        return f"{nodes} nodes, {name}: the median does not come within {100 * NEAR:.0f} % of the optimum."
    return (
        f"{nodes} nodes, {name}: the median is within {100 * NEAR:.0f} % of the optimum after {1e6 * ours:.1f} us, "
        f"{math.log10(theirs / ours):.1f} orders of magnitude before exhaustive search, {1e3 * theirs:.1f} ms."
    )


def _seconds_to_near(search: str, curve: pd.DataFrame) -> float:
    near = curve.loc[curve["median"] <= 1.0 + NEAR, "evaluations"]
    return near.min() / layout_searches.rates()["strategies_per_second"][search] if len(near) else math.nan


FIGURE_4 = ("autoddl_testbed_figure_4", "autoddl_figure_4_daint", "autoddl_figure_4_gcp")
COMPARISONS = {
    **{name: (figure_4,) for name in FIGURE_4},
    "autoddl_figure_8": (figure_8,),
    "autoddl_figure_9_vgg13": (figure_9_vgg13, figure_9_vgg13_shares, figure_9_data_parallel),
    "autoddl_figure_9_transformer": (figure_9_transformer, figure_9_transformer_shares),
    "autoddl_figure_10_vgg13": (figure_10_vgg13,),
    "autoddl_figure_10_transformer": (figure_10_transformer, figure_10_transformer_shares),
    "autoddl_table_3": (table_3, table_3_ratio),
}

# ------------------------------------------------------------------------------------------------------------- claims

OPTIMIZER = "adamw"  # The paper names none: this one was chosen before anything was compared.
DAINT = "latency and bandwidth of Piz Daint, to the shares of communication of VGG-13"
FIT_OF_DAINT = ({"model": "vgg13"},)
TRANSFORMERS = ("autoddl_figure_9_transformer", "autoddl_figure_10_transformer")
SHARES = ("autoddl_figure_9_vgg13", *TRANSFORMERS)


def _saved(*experiments: str):
    def ours(sweeps: Sweeps) -> pd.DataFrame:
        each = []
        for name in experiments:
            rows = cells(sweeps.points(name), name)
            rows = rows[rows["optimizer"] == OPTIMIZER]
            each += [savings(rows, over) for over in (SECOND_BEST, "megatron", "ddp")]
        return pd.concat(each, ignore_index=True)

    return ours


def _savings_claim(what: str, *experiments: str, **others) -> Claim:
    return Claim(
        what,
        "saved",
        "simulated",
        _saved(*experiments),
        experiments,
        tolerance=0.05,
        is_share=True,
        direction=same_side(0.0),
        **others,
    )


def _shares_of_second_best(sweeps: Sweeps) -> pd.DataFrame:
    rows = pd.concat([shares(cells(sweeps.points(name), name)) for name in SHARES], ignore_index=True)
    return rows[rows["optimizer"] == OPTIMIZER]


def _slowdown(sweeps: Sweeps) -> pd.DataFrame:
    rows = figure_9_data_parallel(sweeps.points("autoddl_figure_9_vgg13")).rows
    return rows.rename(columns={"simulated": "ratio"})


def _seconds(sweeps: Sweeps) -> pd.DataFrame:
    rows = cells(sweeps.points("autoddl_table_3"), "autoddl_table_3")
    return rows[rows["optimizer"] == OPTIMIZER].rename(columns={"step_seconds": "seconds"})


def _billions(sweeps: Sweeps) -> pd.DataFrame:
    points = sweeps.points(*TRANSFORMERS).drop_duplicates("model_name")
    return pd.DataFrame({"model": points["model_name"], "billions": points["num_parameters"] / 1e9})


ROOM = "With AdamW, AutoDDL and Megatron have less room than they would have with SGD; the paper names no optimizer."
CLAIMS = (
    _savings_claim("abstract", "autoddl_figure_9_transformer", fitted=DAINT, notes=(({}, ROOM),)),
    _savings_claim(
        "figure_9",
        "autoddl_figure_9_vgg13",
        "autoddl_figure_9_transformer",
        fitted=DAINT,
        fitted_to=FIT_OF_DAINT,
        notes=(({"model": "vgg13"}, "Our Megatron communicates more than the paper's; why is not known."), ({}, ROOM)),
    ),
    Claim(
        "communication_share",
        "share",
        "simulated",
        _shares_of_second_best,
        SHARES,
        tolerance=0.10,
        is_share=True,
        fitted=DAINT,
        fitted_to=FIT_OF_DAINT,
        notes=(({}, "What the paper prints as saved of the step and of communication implies it."),),
    ),
    Claim(
        "figure_9_data_parallel",
        "ratio",
        "simulated",
        _slowdown,
        ("autoddl_figure_9_vgg13",),
        direction=same_side(1.0),
        fitted=DAINT,
    ),
    _savings_claim(
        "figure_10",
        "autoddl_figure_10_vgg13",
        "autoddl_figure_10_transformer",
        notes=(
            (
                {"model": "autoddl-5.8b"},
                "Memory leaves both no more than 8 copies of a weight, and the plans hardly differ.",
            ),
        ),
    ),
    Claim(
        "table_3",
        "seconds",
        "simulated",
        _seconds,
        ("autoddl_table_3",),
        ("stages",),
        fitted=DAINT,
        direction=ranks_as_printed("model", "nodes"),
    ),
    Claim(
        "table_3",
        "stages",
        "simulated",
        _seconds,
        ("autoddl_table_3",),
        ("seconds",),
        tolerance=0.0,
        is_share=True,
        fitted=DAINT,
        notes=(({}, "By our simulation pipelines of other lengths are faster."),),
    ),
    Claim(
        "figure_4",
        "rank_correlation",
        "planner",
        not_comparable="Planner and simulator ask the same formulas: their correlation says nothing of a network. "
        "What is measured (testbed_figure_4.toml) is of another platform.",
    ),
    Claim(
        "figure_3",
        "elements_2e30",
        "counted",
        not_comparable="Results count a whole model; a unit test counts the layer, LayoutVolume.Figure3OfAutoDdl.",
    ),
    Claim(
        "figure_3_relative", "relative", "counted", not_comparable="Figure 3's elements in a unit that is not printed."
    ),
    Claim(
        "figure_8",
        "orders_of_magnitude",
        "planner",
        not_comparable="How much sooner depends on how near to the optimum is near enough, which is not printed.",
    ),
    Claim("models", "billions", "counted", _billions, TRANSFORMERS, tolerance=0.05),
    SETTING,
)
