"""The sections of the README's performance table. Each measures what JSON holds, and makes rows of that."""

import dataclasses
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

import collectives_beside_mpi
import compare_pytorch
import recording_cost
import simulate_many_ranks
import weak_scaling
from process_cost import Cost, checked_cost_of

ROOT = pathlib.Path(__file__).parents[2]
TRAINED = ("gpt2-small", "smollm-135m", "vgg13", "resnet50", "vit-b16")
HELD_TO_MORE = ("gpt2-small", "vgg13")  # than being no slower than PyTorch
OVER_COMPILED_AIM = 2.0  # of their fp32 steps, or of products alone the share that follows
SHARE_OF_PRODUCTS_AIM = 0.9
BF16_OVER_FP32_AIM = 1.3
EFFICIENCY_AIM = 0.95
RECORDING_AIM = 1e-3  # of the ranks' cores
ALL_REDUCED_BYTES = (8, 256 << 10, 64 << 20)
FIGURE_11_SECONDS_AIM = 15.0
DRAWING_SECONDS_AIM = 6.0
SIMULATED_SECONDS_AIMS = {1024: 1.0, 16384: 2.0, 131072: 5.0}
SIMULATED_MEBIBYTES_AIM = 500.0
VERB_SECONDS_AIM = 10.0
VERB_MEBIBYTES_AIM = 1024.0
START_SECONDS_AIM = 0.5


@dataclasses.dataclass
class Row:
    """A line of the table, in words."""

    what: str
    ours: str
    against: str = ""
    ratio: str = ""
    limit: str = ""  # of the machine or the reference, and how much of it is reached
    aim: str = ""
    met: bool = True  # the aim


@dataclasses.dataclass
class Section:
    """@param measure (options of the command) -> what JSON holds. @param rows of that."""

    measure: Callable
    rows: Callable


def number(value):
    """Three digits; thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds):
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    unit = next((unit for unit, size in units.items() if seconds >= size), "µs")
    return f"{number(seconds / units[unit])} {unit}"


# ------------------------------------------------------------------------------ a training step, beside PyTorch's
def measure_training(words):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "compared.json"
        options = ["--strata", words.strata, "--mpiexec", words.mpiexec, "--threads", words.threads]
        options += ["--rounds", words.rounds, "--steps", 2, "--only", words.models or ",".join(TRAINED), "--json", file]
        script = ROOT / "tests" / "bench" / "compare_pytorch.py"
        subprocess.run(list(map(str, [words.pytorch, script, "--compile", *options])), check=True)
        if not file.exists():
            raise RuntimeError(f"{words.pytorch} has no PyTorch; --pytorch PYTHON names one that has")
        return json.loads(file.read_text())


def training_rows(measured):
    version = measured["torch"].partition("+")[0]
    fp32_rates = {
        case["model"]: compare_pytorch.rate(case, "strata") for case in measured["cases"] if case["dtype"] == "fp32"
    }
    rows = []
    for case in measured["cases"]:
        unit = f"{case['sample_unit']}s/s"
        peers = [whose for whose in ("eager", "compiled") if f"{whose}_seconds" in case]
        ratios = {
            whose: compare_pytorch.median_ratio(case[f"{whose}_seconds"], case["strata_seconds"]) for whose in peers
        }
        share, ours = compare_pytorch.share_of_peak(case), compare_pytorch.rate(case, "strata")
        aim, met = training_aim(case, ratios, share, ours / fp32_rates.get(case["model"], ours))
        threads = measured["threads"]
        rows.append(
            Row(
                f"train {case['model']}, {case['dtype']}, batch {case['batch']}, {threads} thread{'s'[: threads > 1]}",
                f"{number(ours)} {unit}",
                f"PyTorch {version} "
                + ", ".join(f"{whose} {number(compare_pytorch.rate(case, whose))}" for whose in peers),
                ", ".join(f"{ratio:.2f}" for ratio in ratios.values()),
                f"products at {number(case['peak_flops_per_second'] * 1e-9)} GFLOP/s: {share:.0%}",
                aim,
                met,
            )
        )
    return rows


def training_aim(case, ratios, share, over_fp32):
    """In words, and whether it is met. @param ratios over whose step."""
    least_ratio = min(ratios.values())
    if case["model"] not in HELD_TO_MORE:
        return "≥ 1", least_ratio >= 1.0
    if case["dtype"] == "fp32":
        words = f"≥ {OVER_COMPILED_AIM:g} of compiled, or {SHARE_OF_PRODUCTS_AIM:.0%} of products"
        return words, ratios.get("compiled", 0.0) >= OVER_COMPILED_AIM or share >= SHARE_OF_PRODUCTS_AIM
    words = f"≥ 1, and {BF16_OVER_FP32_AIM:g} of fp32 ({over_fp32:.2f})"
    return words, least_ratio >= 1.0 and over_fp32 >= BF16_OVER_FP32_AIM


# ------------------------------------------------------------------------------------------------- ranks together
def measure_scaling(words):
    return [
        weak_scaling.measured(words.strata, words.mpiexec, model, dtype, words.rounds, steps=2)
        for model in weak_scaling.BATCHES
        for dtype in weak_scaling.DTYPES
    ]


def scaling_rows(measured):
    rows = []
    for case in measured:
        alone, together, exposed = (
            statistics.median(case[name]) for name in ("alone_seconds", "together_seconds", "exposed_share")
        )
        efficiency = weak_scaling.efficiency(case)
        rows.append(
            Row(
                f"weak scaling of {case['model']}, {case['dtype']}, ddp, {case['batch']} samples a rank",
                f"2 ranks: {duration(together)}, {exposed:.1%} exposed communication",
                f"1 rank: {duration(alone)}",
                f"{efficiency:.3f}",
                f"1; of two runs apart at once {weak_scaling.efficiency(case, 'beside'):.3f}",
                f"≥ {EFFICIENCY_AIM}",
                efficiency >= EFFICIENCY_AIM,
            )
        )
    return rows


def measure_collectives(words):
    bench = pathlib.Path(words.strata).parent / "tests" / "bench_collectives"
    return [
        row
        for ranks in collectives_beside_mpi.RANKS
        for row in collectives_beside_mpi.measured(bench, words.mpiexec, ranks)
    ]


def collectives_rows(measured):
    rows = []
    for row in measured:
        if row["bytes"] not in ALL_REDUCED_BYTES:
            continue
        limit = f"memory {duration(row['bound_seconds'])}: {row['bound_seconds'] / row['seconds']:.0%}"
        ratio = row["mpi_seconds"] / row["seconds"]
        rows.append(
            Row(
                f"all-reduce of {collectives_beside_mpi.in_words(row['bytes'])}, {row['ranks']} ranks",
                duration(row["seconds"]),
                f"MPI_Allreduce {duration(row['mpi_seconds'])}",
                number(ratio),
                limit if row["bytes"] >= collectives_beside_mpi.LEAST_STREAMED_BYTES else "",
                "≥ 1",
                ratio >= 1.0,
            )
        )
    return rows


def measure_recording(words):
    return recording_cost.measured(words.strata, words.mpiexec, words.rounds, steps=500)


def recording_rows(measured):
    share = recording_cost.share(measured)
    return [
        Row(
            f"recording, a step of {measured['ranks']} ranks",
            f"{duration(statistics.median(measured['recording_seconds']))} of a core",
            f"step of {duration(statistics.median(measured['step_seconds']))} on {measured['cores']} cores",
            f"{share:.2%}",
            "",
            f"< {RECORDING_AIM:.1%}",
            share < RECORDING_AIM,
        )
    ]


# ----------------------------------------------------------------------------------------------------- simulation
def measure_figure_11(words):
    """Simulating it, and drawing what was simulated."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = ROOT / "experiments" / "amsp" / "figure_11.toml"
        simulated = checked_cost_of([words.strata, "simulate", experiment, "--results", folder])
        results = pathlib.Path(folder) / "amsp_figure_11"
        drawn = checked_cost_of([sys.executable, "-m", "strata_analysis", "figures", results])
        return {
            "num_points": len(list(results.glob("*/1.h5"))),
            "num_figures": len(list((results / "figures").glob("*.png"))),
            "simulated": dataclasses.asdict(simulated),
            "drawn": dataclasses.asdict(drawn),
        }


def figure_11_rows(measured):
    return [
        _row_of_cost(
            f"`strata simulate`: {measured['num_points']} points of AMSP's figure 11, 8 to 1,024 ranks",
            measured["simulated"],
            FIGURE_11_SECONDS_AIM,
        ),
        _row_of_cost(
            f"`strata figures`: its {measured['num_figures']} figures in three formats",
            measured["drawn"],
            DRAWING_SECONDS_AIM,
        ),
    ]


def _row_of_cost(what, cost, aim):
    cost = Cost(**cost)
    return Row(what, _cost_words(cost), aim=f"< {aim:g} s of processors", met=cost.cpu_seconds < aim)


def _cost_words(cost):
    return f"{cost.seconds:.2f} s, {cost.cpu_seconds:.2f} s of processors, {cost.mebibytes:.0f} MiB"


def measure_many_ranks(words):
    return simulate_many_ranks.measured(words.strata, words.rounds)


def many_ranks_rows(measured):
    """Of each number of ranks the slowest point, and the most memory."""
    rows = []
    for ranks, aim in SIMULATED_SECONDS_AIMS.items():
        points = [point for point in measured if point[2] == ranks]
        model, mode, _, seconds, _ = max(points, key=lambda point: point[3])
        mebibytes = max(point[4] for point in points)
        rows.append(
            Row(
                f"`strata simulate`: a point of {ranks:,} ranks, the slowest of {len(points)} ({model}, {mode})",
                f"{seconds:.2f} s, {mebibytes:.0f} MiB",
                aim=f"< {aim:g} s, {SIMULATED_MEBIBYTES_AIM:.0f} MiB",
                met=seconds < aim and mebibytes < SIMULATED_MEBIBYTES_AIM,
            )
        )
    return rows


# ------------------------------------------------------------------------------------------------------- analysis
def measure_analysis(words):
    """Of a sweep that is made once and kept beside the measurements."""
    import bench_analysis

    sweep = {"num_points": 100, "num_runs": 10, "num_steps": 1000}
    folder = words.measured.with_suffix("") / "sweep"
    if not folder.exists():
        part = folder.with_name("sweep.part")
        shutil.rmtree(part, ignore_errors=True)
        bench_analysis.write_sweep(part, **sweep)
        part.rename(folder)
    costs = {verb: bench_analysis.cost_of_verb(verb, folder) for verb in bench_analysis.VERBS}
    if failed := [verb for verb, cost in costs.items() if cost.exit_code != 0]:
        raise RuntimeError(f"{', '.join(failed)} of {folder} did not end well")
    return sweep | {"costs": {verb: dataclasses.asdict(cost) for verb, cost in costs.items()}}


def analysis_rows(measured):
    num_attempts = measured["num_points"] * measured["num_runs"]
    rows = []
    for verb, cost in measured["costs"].items():
        is_start = verb == "start"
        aim = START_SECONDS_AIM if is_start else VERB_SECONDS_AIM
        rows.append(
            Row(
                "`strata_analysis --help`"
                if is_start
                else f"`strata {verb}`: {num_attempts:,} attempts of {measured['num_steps']:,} steps",
                _cost_words(Cost(**cost)),
                aim=f"< {aim:g} s" + ("" if is_start else f", {VERB_MEBIBYTES_AIM:.0f} MiB"),
                met=cost["seconds"] < aim and (is_start or cost["mebibytes"] < VERB_MEBIBYTES_AIM),
            )
        )
    return rows


# In the order of the table.
SECTIONS = {
    "training": Section(measure_training, training_rows),
    "scaling": Section(measure_scaling, scaling_rows),
    "collectives": Section(measure_collectives, collectives_rows),
    "recording": Section(measure_recording, recording_rows),
    "figure_11": Section(measure_figure_11, figure_11_rows),
    "many_ranks": Section(measure_many_ranks, many_ranks_rows),
    "analysis": Section(measure_analysis, analysis_rows),
}
