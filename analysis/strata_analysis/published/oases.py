"""Oases' printed numbers beside the points of experiments/oases/: one function a figure or table, each a Comparison."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pandas as pd

from strata_analysis.derive import key_column
from strata_analysis.predicted import STEP, errors, spearman
from strata_analysis.published import Comparison, beside, ended, errors_in_words, published, same_ranking
from strata_analysis.published.claims import SETTING, Claim, ranks_as_printed, same_side
from strata_analysis.published.sweeps import Sweeps

# Columns of table 3: strategy.fine_recompute of mode oases with one degree for all layers.
PARTS = {"false": "cross-pass", "true": "fine-grained"}
BASELINES = ("megatron", "merak", "decomposed", "alpa")
TIMES = "\N{MIDDLE DOT}"  # asterisks would be emphasis in Markdown
# As the paper calls them, in its order.
NAMES = {"megatron": "Megatron", "merak": "Merak", "decomposed": "Wang et al.", "alpa": "Alpa", "oases": "Oases"}


def of_experiment(points: pd.DataFrame, name: str) -> pd.DataFrame:
    """The points of one experiment that ended well, in the words of the data file.

    cluster, model, batch (sequences a step), gpus, strategy (a column of table 3; "printed degrees": those of table 6),
    k_tokens (thousands a second over all GPUs), busy (share of the step in which kernels run; not what profilers call
    SM efficiency).
    """
    ours = points[(points["experiment_name"] == name) & (points["status"] == "ok")]
    parts = key_column(ours, "strategy.fine_recompute", "true")
    tensor = key_column(ours, "strategy.tensor", "planner")
    degrees = key_column(ours, "strategy.degrees", "")
    return pd.DataFrame(
        {
            "cluster": key_column(ours, "cluster", "this"),
            "model": ours["model_name"].to_numpy(),
            "batch": ours["num_sequences_per_step"].to_numpy(),
            "gpus": ours["num_ranks"].to_numpy(),
            "strategy": [
                _column(strategy, part, degree, listed)
                for strategy, part, degree, listed in zip(ours["strategy_name"], parts, tensor, degrees, strict=True)
            ],
            "k_tokens": (ours["samples_per_second"] / 1e3).to_numpy(),
            "step_seconds": ours["step_seconds"].to_numpy(),
            "busy": ours["busy_share"].to_numpy(),
        }
    )


def _column(strategy: str, part: str, tensor: str, degrees: str) -> str:
    if strategy != "oases":
        return strategy
    if degrees:
        return "printed degrees"
    return "planner" if tensor == "planner" else PARTS[part]


def table_3(points: pd.DataFrame) -> Comparison:
    ours = of_experiment(points, "oases_table_3")
    rows = beside(published("oases", "table_3"), ours, ["cluster", "model", "strategy"], "k_tokens")
    statements = []
    for (cluster, model), members in rows.groupby(["cluster", "model"], sort=False):
        rises = bool((members["simulated"].diff().dropna() >= 0).all())
        gain = members["simulated"].iloc[-1] / members["simulated"].iloc[0]
        printed = members["paper"].iloc[-1] / members["paper"].iloc[0]
        words = "rises" if rises else "does not rise"
        statements.append(
            f"{model} on {cluster}: the row {words}; all parts over Megatron, paper / simulated: "
            f"{printed:.2f} / {gain:.2f}."
        )
    listed = ours[ours["strategy"] == "printed degrees"]
    for row in listed.itertuples(index=False):
        statements.append(
            f"{row.model} on {row.cluster} with the degrees of table 6: {row.k_tokens:.1f} simulated, "
            f"{row.step_seconds:.1f} s a step."
        )
    statements.append(f"{errors_in_words(rows)}.")
    return Comparison("Table 3, thousands of tokens a second on 32 GPUs", rows, statements, digits=1)


def table_2(points: pd.DataFrame) -> Comparison:
    """Oases over Megatron: printed, multiprocessors' efficiency; simulated, the share of time with a kernel running."""
    ours = of_experiment(points, "oases_table_2").replace({"strategy": {"planner": "oases"}})
    shares = ours.pivot_table(index=["cluster", "model"], columns="strategy", values="busy").reset_index()
    shares["ratio"] = shares["oases"] / shares["megatron"]
    printed = published("oases", "table_2")
    printed["ratio"] = printed["oases"] / printed["megatron"]
    rows = beside(printed.drop(columns=["oases", "megatron"]), shares, ["cluster", "model"], "ratio")
    statements = [
        f"Of {cluster} {'the same ranking' if same_ranking(members) else 'another ranking'} of models."
        for cluster, members in rows.groupby("cluster", sort=False)
    ]
    statements.append(
        "Printed: efficiency of streaming multiprocessors; simulated: share of time with a kernel running."
    )
    return Comparison("Table 2, device efficiency of Oases over Megatron's", rows, statements)


def figure_2(points: pd.DataFrame) -> Comparison:
    ours = of_experiment(points, "oases_figure_2")
    megatron = ours[ours["strategy"] == "megatron"].set_index("model")
    oases = ours[ours["strategy"] != "megatron"].set_index("model")
    communication = (1.0 - megatron["busy"]) * megatron["step_seconds"]
    names = dict(zip(sorted(megatron.index), ("first", "second"), strict=True))
    shares = pd.DataFrame(
        {"model": [names[model] for model in megatron.index], "communication_share": 1.0 - megatron["busy"].to_numpy()}
    )
    rows = beside(published("oases", "figure_2"), shares, ["model"], "communication_share")
    statements = [f"The {names[model]} is {model} here." for model in sorted(names)]
    for model in sorted(names):
        shorter = "shorter" if oases["step_seconds"][model] < communication[model] else "not shorter"
        statements.append(
            f"{model}: an iteration of Oases, {oases['step_seconds'][model]:.2f} s, is {shorter} than Megatron's "
            f"communication, {communication[model]:.2f} s."
        )
    return Comparison("Figure 2, share of Megatron's iteration that communicates", rows, statements)


def figure_4(points: pd.DataFrame) -> Comparison:
    """Oases over the best baseline and over Megatron: the least and the most of all models."""
    return _over_baselines(_of_figure_4(points), "figure_4", ["model"], "Figure 4, throughput of Oases over others'")


def figure_4_models(points: pd.DataFrame) -> Comparison:
    return _each(
        _of_figure_4(points),
        ["model"],
        "Figure 4, thousands of tokens a second on 32 GPUs",
        failures_in_words(points, "oases_figure_4"),
    )


def figure_4_throughputs(points: pd.DataFrame) -> pd.DataFrame:
    """A row a cluster and model, a column a strategy, of thousands of tokens a second; and of the best baseline."""
    return _beside_baselines(_of_figure_4(points), ["model"])


def _of_figure_4(points: pd.DataFrame) -> pd.DataFrame:
    return of_experiment(points, "oases_figure_4").replace({"strategy": {"planner": "oases"}})


def figure_5(points: pd.DataFrame) -> Comparison:
    """The same inside the stages of a pipeline; a row a model and global batch."""
    return _over_baselines(
        _of_figure_5(points),
        "figure_5",
        ["model", "batch"],
        "Figure 5, throughput of Oases in four stages over others'",
        together=True,
    )


def figure_5_batches(points: pd.DataFrame) -> Comparison:
    steps = _beside_baselines(_of_figure_5(points), ["model", "batch"])
    statements = failures_in_words(points, "oases_figure_5")
    for model, members in steps.groupby("model", sort=False):
        over = [members["cross-pass"] / members[column] for column in ("best baseline", "megatron")]
        best, megatron = (f"{ratios.min():.2f} to {ratios.max():.2f}" for ratios in over)
        statements.append(f"{model}: crossed passes alone over the best baseline {best}, over Megatron {megatron}.")
    return _each(
        _of_figure_5(points), ["model", "batch"], "Figure 5, thousands of tokens a second in four stages", statements
    )


def _of_figure_5(points: pd.DataFrame) -> pd.DataFrame:
    return of_experiment(points, "oases_figure_5").replace({"strategy": {"fine-grained": "oases"}})


def failures_in_words(points: pd.DataFrame, experiment: str) -> list[str]:
    """Of each ending but a good one a line: whose points of which model ended so."""
    failed = points[(points["experiment_name"] == experiment) & (points["status"] != "ok")]
    ends = [ended(point) for _, point in failed.iterrows()]
    return [
        f"{end}: "
        + ", ".join(
            f"{NAMES.get(strategy, strategy)} of {model} ({len(those)} points)"
            for (strategy, model), those in members.groupby(["strategy_name", "model_name"], sort=False)
        )
        + "."
        for end, members in failed.groupby(ends, sort=False)
    ]


def _beside_baselines(ours: pd.DataFrame, of: list[str]) -> pd.DataFrame:
    """A row a cluster and `of`, a column a strategy, of thousands of tokens a second; and of the best baseline."""
    steps = ours.pivot_table(index=["cluster", *of], columns="strategy", values="k_tokens").reset_index()
    return steps.assign(**{"best baseline": steps[[name for name in BASELINES if name in steps]].max(axis="columns")})


def _bounds(steps: pd.DataFrame, together: bool) -> pd.DataFrame:
    bounds = []
    for cluster, members in [("both", steps)] if together else steps.groupby("cluster", sort=False):
        for over in ("best baseline", "megatron"):
            speedups = (members["oases"] / members[over]).dropna()
            for bound, speedup in (("least", speedups.min()), ("most", speedups.max())):
                bounds.append({"cluster": cluster, "over": over, "bound": bound, "speedup": speedup})
    return pd.DataFrame(bounds)


def _over_baselines(ours: pd.DataFrame, what: str, of: list[str], title: str, *, together: bool = False) -> Comparison:
    """The least and the most quotient of oases over others, of all rows (columns `of`) of a cluster, or of both."""
    steps = _beside_baselines(ours, of)
    baselines = [NAMES[name] for name in BASELINES if name in steps]
    rows = beside(published("oases", what), _bounds(steps, together), ["cluster", "over", "bound"], "speedup")
    return Comparison(title, rows, [f"Baselines here: {', '.join(baselines)}."])


def _each(ours: pd.DataFrame, of: list[str], title: str, statements: list[str]) -> Comparison:
    """A row a cluster and `of`, narrow models first: every strategy, and Oases over the best baseline and Megatron."""
    steps = _beside_baselines(ours, of)
    order = [[_size(model) for model in steps["model"]], *(steps[name] for name in of[1:]), steps["cluster"]]
    steps = steps.iloc[np.lexsort(order[::-1])].reset_index(drop=True)
    columns = [name for name in (*BASELINES, "cross-pass", "oases") if name in steps]
    rows = steps[[*of, "cluster", *columns]].rename(columns=NAMES)
    rows["over the best baseline"] = steps["oases"] / steps["best baseline"]
    rows["over Megatron"] = steps["oases"] / steps["megatron"]
    return Comparison(title, rows, statements)


def _size(model: str) -> float:
    """Width or billions of parameters, whichever the name has."""
    return float(re.search(r"\d+(\.\d+)?", model)[0])


def figure_7(points: pd.DataFrame) -> Comparison:
    """Weak scaling; the paper prints no numbers of it. Efficiency: of as many times the throughput of the fewest GPUs
    as there are GPUs more."""
    ours = of_experiment(points, "oases_figure_7").replace({"strategy": {"planner": "oases"}})
    rows = ours.pivot_table(index="gpus", columns="strategy", values="k_tokens").reset_index()
    strategies = [name for name in NAMES if name in rows]
    efficiencies = {
        f"efficiency of {NAMES[name]}": rows[name] / rows["gpus"] / (rows[name] / rows["gpus"]).iloc[0]
        for name in strategies
    }
    rows = rows[["gpus", *strategies]].astype({"gpus": str}).rename(columns=NAMES).assign(**efficiencies)
    return Comparison("Figure 7, thousands of tokens a second, as many samples more as GPUs", rows)


def table_5(points: pd.DataFrame) -> Comparison:
    """The printed pipeline, tensor and data degrees, and searched ones; the paper prints no throughput of either."""
    ours = points[points["experiment_name"] == "oases_table_5"]
    tensor = key_column(ours, "strategy.tensor", "planner")
    chunks = key_column(ours, "strategy.chunks", "planner")
    rows = pd.DataFrame(
        {
            "model": ours["model_name"],
            "cluster": key_column(ours, "cluster", "this"),
            "micro_batches": key_column(ours, "train.micro_batches", "1"),
            "degrees": [_degrees_asked(*asked) for asked in zip(tensor, chunks, strict=True)],
            "stages x tensor x data": [
                pipeline_in_words(text) if status == "ok" else "-"
                for text, status in zip(ours["plan_text"], ours["status"], strict=True)
            ],
            "k_tokens": (ours["samples_per_second"] / 1e3).where(ours["status"] == "ok"),
        }
    )
    printed = rows[rows["degrees"] == "printed"].set_index(["model", "cluster"])["k_tokens"]
    rows["over printed"] = [
        row.k_tokens / printed.get((row.model, row.cluster), np.nan) for row in rows.itertuples(index=False)
    ]
    places = [DEGREES.index(degrees) for degrees in rows["degrees"]]
    order = np.lexsort([places, rows["cluster"], [_size(model) for model in rows["model"]]])
    return Comparison("Table 5, thousands of tokens a second by degrees", rows.iloc[order].reset_index(drop=True))


DEGREES = ("printed", "searched, a stage a place", "searched")


def _degrees_asked(tensor: str, chunks: str) -> str:
    return DEGREES[0] if tensor != "planner" else DEGREES[1] if chunks == "1" else DEGREES[2]


def pipeline_in_words(plan_text: str) -> str:
    """ "8 places of 3 x 2 x 2": stages (of a place, where they are interleaved), tensor and data ranks of a plan."""
    plan = tomllib.loads(plan_text)
    mesh = plan["mesh"]
    places = mesh["axes"].get("stage", 1)
    if "data" in mesh["axes"]:
        data = mesh["axes"]["data"]
    else:
        in_node, nodes = plan["operators"][0]["layout"]["p0"].split("x")
        data = int(in_node) * int(nodes)
    tensor = mesh["nodes"] * mesh["ranks_per_node"] // (places * data)
    chunks = plan["stages"]["count"] // places
    stages = f"{places} places of {chunks}" if chunks > 1 else f"{places}"
    return f"{stages} x {tensor} x {data}"


def table_6(points: pd.DataFrame) -> Comparison:
    """Degrees by source of costs and by search, beside the printed ones, which are those of both clusters."""
    ours = points[(points["experiment_name"] == "oases_table_6") & (points["status"] == "ok")]
    printed = published("oases", "table_6")
    printed = printed[printed["cluster"] == "rtx3090-pcie"]
    paper = {
        model: " + ".join(f"{row.degree}{TIMES}{row.layers}" for row in members.itertuples())
        for model, members in printed.groupby("model")
    }
    rows = pd.DataFrame(
        {
            "model": ours["model_name"],
            "paper": [f"{paper[model]} of layers" for model in ours["model_name"]],
            "cost": key_column(ours, "strategy.cost", "analytic"),
            "search": key_column(ours, "strategy.search", "exact"),
            "planned": [degrees_in_words(text) for text in ours["plan_text"]],
            "step_seconds": ours["step_seconds"],
        }
    )
    costs = [("paper", "authors", "analytic").index(cost) for cost in rows["cost"]]
    order = np.lexsort([rows["search"] != "exact", costs, [_size(model) for model in rows["model"]]])
    return Comparison("Table 6, degrees that are chosen", rows.iloc[order].reset_index(drop=True), digits=1)


def degrees_in_words(plan_text: str) -> str:
    found = re.search(r"degrees ([0-9*+]+ of [^;\n]+)", plan_text)
    return found[1].replace("*", TIMES).replace("+", " + ") if found else "-"


COMPARISONS = {
    "oases_figure_4": (figure_4, figure_4_models),
    "oases_figure_5": (figure_5, figure_5_batches),
    "oases_figure_7": (figure_7,),
    "oases_table_2": (table_2,),
    "oases_table_3": (table_3,),
    "oases_table_5": (table_5,),
    "oases_table_6": (table_6,),
    "oases_figure_2": (figure_2,),
}

# ------------------------------------------------------------------------------------------------------------- claims

BUSY = (
    "Printed is the efficiency of streaming multiprocessors, which also counts how much of a device a kernel uses; "
    "here it is the share of time in which a kernel runs."
)


def _table_3(sweeps: Sweeps) -> pd.DataFrame:
    return of_experiment(sweeps.points("oases_table_3"), "oases_table_3")


def _busy(strategy: str):
    def ours(sweeps: Sweeps) -> pd.DataFrame:
        rows = of_experiment(sweeps.points("oases_table_2"), "oases_table_2").replace(
            {"strategy": {"planner": "oases"}}
        )
        return rows[rows["strategy"] == strategy].rename(columns={"busy": strategy})

    return ours


def _busy_bounds(sweeps: Sweeps) -> pd.DataFrame:
    ratios = table_2(sweeps.points("oases_table_2")).rows["simulated"]
    return pd.DataFrame({"bound": ["least", "most"], "ratio": [ratios.min(), ratios.max()]})


def _shares(sweeps: Sweeps) -> pd.DataFrame:
    rows = figure_2(sweeps.points("oases_figure_2")).rows
    return rows[["model", "simulated"]].rename(columns={"simulated": "communication_share"})


def _figure_4(sweeps: Sweeps) -> pd.DataFrame:
    return _bounds(figure_4_throughputs(sweeps.points("oases_figure_4")), together=False)


def _figure_5(sweeps: Sweeps) -> pd.DataFrame:
    ours = _of_figure_5(sweeps.points("oases_figure_5"))
    return _bounds(_beside_baselines(ours, ["model", "batch"]), together=True)


def layers_by_degree(plan_text: str, degrees: list[int], num_layers: int) -> list[float]:
    """Layers of a planned model that have each degree; NaN where the plan does not say. An attention or an MLP that has
    a degree of its own is half a layer.
    """
    listed = re.search(r"degrees ([0-9*+]+)( of attentions and MLPs)?", plan_text)
    uniform = re.search(r'binding = "tensor (\d+)x(\d+)', plan_text)
    if listed:
        pairs = [word.split("*") for word in listed[1].split("+")]
        of_a_layer = 2 if listed[2] else 1
        return [sum(int(count) for d, count in pairs if int(d) == degree) / of_a_layer for degree in degrees]
    if uniform:
        of_all = int(uniform[1]) * int(uniform[2])
        return [float(num_layers if of_all == degree else 0) for degree in degrees]
    return [np.nan] * len(degrees)


def _plans(sweeps: Sweeps) -> pd.DataFrame:
    points = sweeps.points("oases_table_3")
    points = points[points["strategy_name"] == "oases"]
    free = [
        tensor == "planner" and not degrees
        for tensor, degrees in zip(
            key_column(points, "strategy.tensor", "planner"), key_column(points, "strategy.degrees", ""), strict=True
        )
    ]
    points = points[free]
    points = points.assign(cluster=key_column(points, "cluster", "this"))
    found = []
    for (cluster, model), printed in published("oases", "table_6").groupby(["cluster", "model"]):
        own = points[(points["cluster"] == cluster) & (points["model_name"] == model)]
        degrees = list(printed["degree"])
        for plan_text in own["plan_text"]:
            layers = layers_by_degree(plan_text, degrees, int(printed["layers"].sum()))
            found += [(cluster, model, *pair) for pair in zip(degrees, layers, strict=True)]
    return pd.DataFrame(found, columns=["cluster", "model", "degree", "layers"])


def _rank_correlation(sweeps: Sweeps) -> pd.DataFrame:
    """One machine of ours stands for both of theirs."""
    rows = errors(sweeps.results("oases_testbed_figure_6"))
    steps = rows[rows["metric"] == STEP]
    value = spearman(steps["predicted"], steps["measured"])
    return pd.DataFrame({"cluster": ["rtx3090-nvlink", "rtx3090-pcie"], "spearman": value})


SMALLER_DEGREES = "Our planner finds smaller degrees than the paper's, which are faster by every cost that was tried."
CLAIMS = (
    Claim(
        "table_3",
        "k_tokens",
        "simulated",
        _table_3,
        ("oases_table_3",),
        direction=ranks_as_printed("cluster", "model"),
        notes=(
            ({"strategy": "planner"}, SMALLER_DEGREES),
            ({}, "Bandwidths and latencies of the description are estimates."),
        ),
    ),
    Claim("table_2", "megatron", "simulated", _busy("megatron"), ("oases_table_2",), ("oases",), not_comparable=BUSY),
    Claim("table_2", "oases", "simulated", _busy("oases"), ("oases_table_2",), ("megatron",), not_comparable=BUSY),
    Claim("table_2_bounds", "ratio", "simulated", _busy_bounds, ("oases_table_2",), not_comparable=BUSY),
    Claim(
        "figure_2",
        "communication_share",
        "simulated",
        _shares,
        ("oases_figure_2",),
        is_share=True,
        direction=ranks_as_printed(),
        notes=(({}, "The models' sizes are not printed; ours are 2048 and 3072 wide."),),
    ),
    Claim(
        "figure_4",
        "speedup",
        "simulated",
        _figure_4,
        ("oases_figure_4",),
        direction=same_side(1.0),
        notes=(({}, SMALLER_DEGREES),),
    ),
    Claim(
        "figure_5",
        "speedup",
        "simulated",
        _figure_5,
        ("oases_figure_5",),
        direction=same_side(1.0),
        notes=(({}, "The global batches are not printed."),),
    ),
    Claim(
        "table_6",
        "layers",
        "planner",
        _plans,
        ("oases_table_3",),
        tolerance=0.0,
        is_share=True,
        notes=(({}, SMALLER_DEGREES),),
    ),
    Claim(
        "table_6_time",
        "milliseconds",
        "planner",
        not_comparable="Milliseconds of an unnamed processor; results hold no search's time, bench_planners has it.",
    ),
    Claim(
        "figure_6",
        "spearman",
        "run",
        _rank_correlation,
        ("oases_testbed_figure_6",),
        not_comparable="Ours is of another model on another machine, four ranks over a slow wire.",
    ),
    SETTING,
)
