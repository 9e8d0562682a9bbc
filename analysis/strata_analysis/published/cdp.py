"""CDP's printed numbers beside the points of experiments/cdp/: one function a figure or table, each a Comparison.

Both stand on the table /memory, so they are given the results beside the points.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from strata_analysis import evaluated
from strata_analysis.derive import key_column
from strata_analysis.load import INDEX, Results
from strata_analysis.memory_over_time import curves_of, live_stage_activations, mean_of_workers, one_step
from strata_analysis.published import Comparison, published
from strata_analysis.published.claims import SETTING, Claim, ranks_as_printed
from strata_analysis.published.sweeps import Sweeps

WORKERS = (4, 8, 32)
# What of a worker's step is taken for its activation memory. The paper subtracts parameters from all that a step takes,
# which leaves the gradients in.
MEMORY = {
    "activations": ("activation",),
    "all but parameters and optimizer states": ("gradient", "activation", "workspace", "communication"),
}

# Rows of table 1: printed name -> (how it is called here, strategy, its implementation, or its number of stages). One
# device, simultaneous, is there twice: the paper compares with all micro-batches in flight, and plain accumulation
# keeps one.
ROWS = (
    ("single-GPU DP", "all micro-batches in flight", "gpipe", "1 stage"),
    ("single-GPU DP", "accumulation", "single", ""),
    ("single-GPU DP + cyclic", "v1", "cdp-v1", "single"),
    ("single-GPU DP + cyclic", "v2", "cdp-v2", "single"),
    ("multi-GPU DP", "ddp", "ddp", ""),
    ("multi-GPU DP + cyclic", "v1", "cdp-v1", "multi"),
    ("multi-GPU DP + cyclic", "v2", "cdp-v2", "multi"),
    ("DP with MP", "gpipe, a micro-batch a replica", "gpipe", "3 stages"),
    ("DP with MP + cyclic", "v1", "cdp-v1", "model"),
    ("DP with MP + cyclic", "v2", "cdp-v2", "model"),
    ("PP", "1f1b", "1f1b", ""),
    ("PP", "cyclic, v1", "cdp-v1", "pipeline"),
    ("PP", "cyclic, v2", "cdp-v2", "pipeline"),
    ("ZeRO-DP", "zero3", "zero3", ""),
    ("ZeRO-DP + cyclic", "v1", "cdp-v1", "zero"),
    ("ZeRO-DP + cyclic", "v2", "cdp-v2", "zero"),
)
# Messages one after the other that a rank of N sends in a collective of ours: rings.
RING_STEPS = {"all_reduce": lambda n: 2 * (n - 1), "all_gather": lambda n: n - 1, "reduce_scatter": lambda n: n - 1}


def of_experiment(points: pd.DataFrame, name: str) -> pd.DataFrame:
    """The points of one experiment that ended well."""
    return points[(points["experiment_name"] == name) & (points["status"] == "ok")]


def implementations(points: pd.DataFrame) -> list[str]:
    """Of each point what ROWS say beside its strategy: how a cyclic one is implemented, gpipe's stages, or nothing."""
    asked = key_column(points, "strategy.implementation", "multi")
    stages = [f"{n} stage{'s' if n != '1' else ''}" for n in key_column(points, "strategy.stages", "1")]
    words = []
    for strategy, implementation, pipeline in zip(points["strategy_name"], asked, stages, strict=True):
        words.append(implementation if strategy.startswith("cdp") else pipeline if strategy == "gpipe" else "")
    return words


def replicas_of(point: pd.Series, implementation: str) -> int:
    """Ranks that share a collective: of a pipeline beside replicas those of a stage, else all."""
    stages = int(implementation.split()[0]) if point["strategy_name"] == "gpipe" else 1
    return int(point["num_ranks"]) // stages


# --------------------------------------------------------------------------------------------------------- figure 4


def reductions(points: pd.DataFrame, results: Results) -> pd.DataFrame:
    """A row a model, metric and number of workers: peak_gib of one worker, reduction of the peak a worker."""
    rows = []
    for _, point in of_experiment(points, "cdp_figure_4").iterrows():
        for metric, categories in MEMORY.items():
            curve = one_step(results, point, categories)
            if curve is None:
                continue
            peak = curve.values.max()
            for workers in WORKERS:
                mean = mean_of_workers(curve, workers).values.max()
                row = (point["model_name"], metric, workers, peak / 2**30, 1.0 - mean / peak)
                rows.append(row)
    return pd.DataFrame(rows, columns=["model", "metric", "workers", "peak_gib", "reduction"])


def counted_reduction(num_workers: int) -> float:
    """Of stages' activations, by the schedule alone: (N - 1) / 2N."""
    simultaneous, cyclic = live_stage_activations(num_workers)
    return 1.0 - cyclic / simultaneous


def figure_4(points: pd.DataFrame, results: Results) -> Comparison:
    def percent(value: float) -> str:
        return f"{100 * value:.1f} %"

    ours = reductions(points, results)
    printed = {
        row.model: f"{100 * row.reduction:.0f} %" for row in published("cdp", "figure_4").itertuples(index=False)
    }
    missing = [model for model in printed if model not in set(ours["model"])]
    rows = [
        {"model": model, "metric": "shifted copies of one worker's curve"}
        | {f"N = {workers}": "not run" for workers in WORKERS}
        | {"printed": printed[model]}
        for model in missing
    ]
    for (model, metric), members in ours.groupby(["model", "metric"], sort=False):
        by_workers = dict(zip(members["workers"], members["reduction"], strict=True))
        row = {"model": model, "metric": f"shifted copies, {metric}"}
        rows.append(row | {f"N = {n}": percent(by_workers[n]) for n in WORKERS} | {"printed": printed.get(model, "-")})
    counted = {f"N = {n}": percent(counted_reduction(n)) for n in WORKERS}
    rows.append({"model": "any", "metric": "counted stages, (N-1)/2N"} | counted | {"printed": "50 % (limit)"})
    statements = [f"Not run: {', '.join(missing)}."] if missing else []
    statements += [
        "The paper's numbers are extrapolated as ours are: copies of one worker's curve, 1/N of a step apart, "
        "their sum over N. It subtracts parameters alone, so gradients are probably in them; it prints no batch; "
        "its 42 % is (3.9 - 2.3) / 3.9 GB, 41 %.",
    ]
    title = "Figure 4, how much lower the peak of activation memory a worker is"
    return Comparison(title, pd.DataFrame(rows), statements)


# ---------------------------------------------------------------------------------------------------------- table 1


def accounts(points: pd.DataFrame, results: Results) -> pd.DataFrame:
    """A row a point of table 1: strategy, implementation, devices, micro_batches; activation_bytes and
    parameter_bytes (parameters and optimizer states) of the rank with the most, each at its own peak; weight_bytes of
    parameters alone; sent_bytes a step, mean and max over the recorded ranks; steps of communication.
    """
    rows = []
    ours = of_experiment(points, "cdp_table_1")
    for (_, point), implementation in zip(ours.iterrows(), implementations(ours), strict=True):
        events = results.events
        for key in INDEX:
            events = events[events[key] == point[key]]
        if events.empty:
            continue
        peaks = {
            name: max(curve.values.max() for curve in curves_of(results, point, categories).values())
            for name, categories in (
                ("activation_bytes", ("activation",)),
                ("parameter_bytes", ("parameter", "optimizer")),
                ("weight_bytes", ("parameter",)),
            )
        }
        sent = events.groupby("rank")["sent_bytes"].sum() / events["step"].nunique()
        rows.append(
            {"strategy": point["strategy_name"], "implementation": implementation}
            | peaks
            | {
                "devices": point["num_ranks"],
                "mean_sent_bytes": sent.mean(),
                "max_sent_bytes": sent.max(),
                "steps": steps_of_communication(events, point, replicas_of(point, implementation)),
                "simulated": bool(point["simulated"]),
            }
        )
    return pd.DataFrame(rows)


def steps_of_communication(events: pd.DataFrame, point: pd.Series, replicas: int) -> str:
    """Messages one after the other that a rank sends between two time steps: in words, of the rank with most of them.

    Of a collective, among `replicas`, those of its ring. Of messages to neighbours: on how many streams, each of which
    is in order, a rank begins to send within a time step, the 2N-th part of a training step. The messages of a stage,
    one a tensor, follow each other on one stream and count as one. Only of simulations: where ranks share cores, passes
    do not take a time step each.
    """
    ranks = int(point["num_ranks"])
    sending = events[events["sent_bytes"] > 0]
    if sending.empty:
        return "-"
    kinds = set(sending["name"].str.split(" ").str[0])
    collective = sorted(kinds & set(RING_STEPS))
    if collective:
        return ", ".join(f"{RING_STEPS[kind](replicas)} ({kind})" for kind in collective)
    if not point["simulated"]:
        return "not counted"
    time_step = point["step_seconds"] / (2 * ranks)
    most = 0
    for _, of_rank in sending.groupby("rank"):
        begins = (of_rank["step_begin_seconds"] + of_rank["begin_seconds"]).to_numpy()
        order = np.argsort(begins, kind="stable")
        begins, streams = begins[order], of_rank["stream"].to_numpy()[order]
        ends = np.searchsorted(begins, begins + time_step, side="left")
        most = max(most, *(len(set(streams[i:end])) for i, end in enumerate(ends)))
    return str(most)


def table_1(points: pd.DataFrame, results: Results) -> Comparison:
    found = accounts(points, results)
    unit = found[(found["strategy"] == "ddp")]
    if unit.empty:
        return Comparison("Table 1", pd.DataFrame(), ["Without ddp, whose memory is the unit, there is no table."])
    base = unit.iloc[0]
    rows = list(_rows_of_table_1(found, base))
    kind = "simulated" if found["simulated"].all() else "measured in runs"
    n = int(base["devices"])
    statements = [
        f"N = {n}; memory and bytes {kind}. B A is what ddp has of activations at its peak, P its parameters and "
        f"optimizer states, W its parameters: {base['activation_bytes']:.0f}, {base['parameter_bytes']:.0f} and "
        f"{base['weight_bytes']:.0f} bytes. Memory is of the device with the most, the volume a device's in a step, "
        "mean (most).",
        "One device, simultaneous, is compared in the paper with N micro-batches in flight at once; accumulation keeps "
        "one, less than cyclic. N P holds only where parameters are copied a micro-batch, which nobody does here.",
        "The printed volume is a tensor's size; here it is what devices send, of data parallel 2(N-1)/N W. The printed "
        "P has optimizer states in it, which do not travel here.",
        "Steps of messages are counted in simulations: on how many streams a device begins to send within the 2N-th "
        "part of a training step; a ring's collective has as many as it has rounds.",
    ]
    return Comparison("Table 1, a device's memory and communication", pd.DataFrame(rows), statements)


def _rows_of_table_1(found: pd.DataFrame, base: pd.Series) -> Iterator[dict[str, str]]:
    printed = published("cdp", "table_1").set_index("row")
    for name, here, strategy, implementation in ROWS:
        formulas = printed.loc[name]
        of_row = found[(found["strategy"] == strategy) & (found["implementation"] == implementation)]
        ours = dict.fromkeys(("activations", "parameters", "volume", "steps", "devices"), "not run")
        if not of_row.empty:
            row = of_row.iloc[0]
            mean, most = (row[key] / base["weight_bytes"] for key in ("mean_sent_bytes", "max_sent_bytes"))
            ours = {
                "activations": f"{row['activation_bytes'] / base['activation_bytes']:.2f} B A",
                "parameters": f"{row['parameter_bytes'] / base['parameter_bytes']:.2f} P",
                "volume": "-" if most == 0 else f"{mean:.2f} ({most:.2f}) W",
                "steps": row["steps"],
                "devices": str(row["devices"]),
            }
        cells = {"row": name, "here": here or "-"}
        for key, value in ours.items():
            cells |= {f"{key}, printed": formulas[key], key: value}
        yield cells


COMPARISONS = {"cdp_figure_4": (figure_4,), "cdp_table_1": (table_1,)}

# ------------------------------------------------------------------------------------------------------------- claims

# Which of ROWS stands for a printed row: the paper's own rule is v2, and it compares with micro-batches kept at once.
STANDS_FOR_IT = ("all micro-batches in flight", "ddp", "gpipe, a micro-batch a replica", "1f1b", "zero3", "v2")


def _reductions(sweeps: Sweeps) -> pd.DataFrame:
    """The paper subtracts parameters, which leaves gradients in; the most workers."""
    rows = reductions(sweeps.points("cdp_figure_4"), sweeps.results("cdp_figure_4"))
    return rows[(rows["workers"] == WORKERS[-1]) & (rows["metric"] == "all but parameters and optimizer states")]


def _limit(_sweeps: Sweeps) -> pd.DataFrame:
    return pd.DataFrame({"workers": ["many"], "reduction": [counted_reduction(WORKERS[-1])]})


def _table_1(sweeps: Sweeps) -> pd.DataFrame:
    found = accounts(sweeps.points("cdp_table_1"), sweeps.results("cdp_table_1"))
    base = found[found["strategy"] == "ddp"].iloc[0]
    rows = []
    for name, here, strategy, implementation in ROWS:
        own = found[(found["strategy"] == strategy) & (found["implementation"] == implementation)]
        if here not in STANDS_FOR_IT or own.empty:
            continue
        row = own.iloc[0]
        rows += [
            (name, "activations", row["activation_bytes"] / base["activation_bytes"]),
            (name, "parameters", row["parameter_bytes"] / base["parameter_bytes"]),
            (name, "devices", float(row["devices"])),
        ]
    return pd.DataFrame(rows, columns=["row", "quantity", "value"])


def _top_1(sweeps: Sweeps) -> pd.DataFrame:
    """Mean over seeds, of the data sets that there are results of."""
    each = []
    for data in ("cifar10", "imagenet"):
        if f"cdp_table_2_{data}" not in sweeps.names:
            continue
        rows = evaluated.by_point(sweeps.results(f"cdp_table_2_{data}"))
        model = rows["model_name"].str.extract(r"^(resnet\d+)", expand=False)
        best = (
            100.0 * rows.groupby([model.rename("model"), rows["strategy_name"].rename("strategy")])["best_top_1"].mean()
        )
        each.append(best.rename("top_1").reset_index().assign(data=data))
    return pd.concat(each) if each else pd.DataFrame(columns=["data", "model", "strategy", "top_1"], dtype=object)


CLAIMS = (
    Claim(
        "figure_4",
        "reduction",
        "simulated",
        _reductions,
        ("cdp_figure_4",),
        tolerance=0.05,
        is_share=True,
        direction=ranks_as_printed(),
        notes=(({}, "An extrapolation from one worker's curve, as the paper's is; it prints no batch."),),
    ),
    Claim("figure_4_limit", "reduction", "counted", _limit, tolerance=0.05, is_share=True),
    Claim(
        "table_1_of_3",
        "value",
        "counted",
        _table_1,
        ("cdp_table_1",),
        direction=ranks_as_printed("quantity"),
        notes=(
            (
                {"quantity": "parameters", "row": "single-GPU DP"},
                "Printed holds where parameters are copied a micro-batch, which nobody does here.",
            ),
            ({"quantity": "parameters"}, "Cyclic rules need versions of what is read while it is updated."),
        ),
    ),
    Claim(
        "table_1",
        "volume",
        "counted",
        without=("activations", "parameters", "steps", "devices"),
        not_comparable="Printed is a tensor's size with the optimizer's states; here it is what devices send.",
    ),
    Claim(
        "table_1",
        "steps",
        "counted",
        without=("activations", "parameters", "volume", "devices"),
        not_comparable="Printed are orders of growth; README counts messages at N = 3.",
    ),
    Claim(
        "table_2",
        "top_1",
        "run",
        _top_1,
        ("cdp_table_2_cifar10", "cdp_table_2_imagenet"),
        tolerance=0.5,
        is_share=True,
        direction=ranks_as_printed("data", "model"),
        notes=(({}, "The data sets are not here; digits.toml runs the three rules in small."),),
    ),
    SETTING,
)
