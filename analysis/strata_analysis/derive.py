"""The derived numbers of results-schema/ for each attempt, and what names and distinguishes it in a table or figure."""

from __future__ import annotations

import math

import pandas as pd

from strata_analysis.load import INDEX, Results
from strata_analysis.statistics import CONFIDENCE, Median, median, num_outliers, rate

# Keys of a point that have a column of their own, or that vary along a scaling series by its nature.
NAMED_KEYS = {"backend", "model.name", "strategy.name", "train.dtype", "resources.threads_per_rank"}
SCALING_KEYS = {"resources.nodes", "resources.ranks_per_node", "train.global_batch", "train.global_batch_tokens"}
EMULATION_KEYS = {"communication.emulated_link.alpha_us", "communication.emulated_link.gbit_per_s"}


PARTS = ("compute", "communication", "exposed_communication", "other")


def derive(results: Results, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """`results.points` with derived columns, each a number with `_low` and `_high` of its interval:

    step_seconds, samples_per_second, model_flops_per_second, mfu; and compute_seconds, exposed_communication_seconds,
    communication_seconds, other_seconds (medians); joules_per_sample; num_outliers; variant (other keys that vary);
    link (emulated link in words, or empty).
    """
    rows = []
    by_attempt = dict(tuple(results.steps[results.steps["phase"] == "measured"].groupby(INDEX)))
    for _, point in results.points.iterrows():
        steps = by_attempt.get(tuple(point[key] for key in INDEX))
        steps = results.steps.iloc[:0] if steps is None else steps
        columns = _from_step_seconds(point, median(steps["step_seconds_max"], confidence))
        for name in PARTS:
            columns[f"{name}_seconds"] = median(steps[f"{name}_seconds"], confidence).value
        samples = steps["num_samples"].sum()
        columns["joules_per_sample"] = steps["energy_joules"].sum(skipna=False) / samples if samples else math.nan
        columns["num_outliers"] = num_outliers(steps["step_seconds_max"])
        columns["link"] = link_in_words(point)
        rows.append(columns)
    points = pd.concat([results.points.reset_index(drop=True), pd.DataFrame(rows)], axis=1)
    points["variant"] = variants(points)
    return points


def by_point(results: Results, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """One row a point, with the columns of `derive` and num_runs: the runs that count.

    One run: its own numbers. Several (the blocks of a head-to-head job): the median of the runs' medians with an
    interval over runs, because steps of one run are correlated and say little about the next run; facts of the last.
    """
    attempts = derive(results, confidence)
    rows = []
    for _, runs in attempts[attempts["counted"]].groupby(INDEX[:2], sort=False):
        point = runs.iloc[-1].copy()
        point["num_runs"] = len(runs)
        if len(runs) > 1:
            for name, value in _from_step_seconds(point, median(runs["step_seconds"], confidence)).items():
                point[name] = value
            for name in PARTS:
                point[f"{name}_seconds"] = median(runs[f"{name}_seconds"], confidence).value
            point["joules_per_sample"] = median(runs["joules_per_sample"], confidence).value
            point["num_outliers"] = runs["num_outliers"].sum()
        rows.append(point)
    return pd.DataFrame(rows).infer_objects().reset_index(drop=True)


def _from_step_seconds(point: pd.Series, seconds: Median) -> dict[str, float]:
    samples = rate(point["num_samples_per_step"], seconds)
    flops = rate(point["num_samples_per_step"] * point["flops_per_sample"], seconds)
    peak = point["num_ranks"] * point["peak_flops_per_second"]
    columns = {}
    for name, value in (("step_seconds", seconds), ("samples_per_second", samples), ("model_flops_per_second", flops)):
        columns |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
    for end in ("", "_low", "_high"):
        columns[f"mfu{end}"] = columns[f"model_flops_per_second{end}"] / peak if peak else math.nan
    return columns


def link_in_words(point: pd.Series) -> str:
    rate_bytes = point["emulated_link_bytes_per_second"]
    if math.isnan(rate_bytes):
        return ""
    return f"emulated link {1e6 * point['emulated_link_alpha_seconds']:.3g} µs, {8e-9 * rate_bytes:.3g} Gbit/s"


def keys_of(point: pd.Series) -> dict[str, str]:
    """The canonical keys of a point: dotted key -> TOML text."""
    lines = (line.split(" = ", 1) for line in point["point_keys"].splitlines() if " = " in line)
    return {key: value for key, value in lines}


def key_column(points: pd.DataFrame, key: str, default: str) -> list[str]:
    """What each point was asked for under `key`, strings without their quotes."""
    return [keys_of(point).get(key, default).strip('"') for _, point in points.iterrows()]


def variants(points: pd.DataFrame) -> list[str]:
    """What else tells a point from the others of the same model: keys beyond those named elsewhere that vary.

    Simulated points are told from simulated ones, and measured from measured: where each ran is said elsewhere.
    """
    keys = [keys_of(point) for _, point in points.iterrows()]
    kinds = list(zip(points["model_name"], points["simulated"].astype(bool), strict=True))
    texts = [[] for _ in keys]
    for key in sorted({key for point_keys in keys for key in point_keys} - NAMED_KEYS - SCALING_KEYS - EMULATION_KEYS):
        for kind in set(kinds):
            members = [i for i, other in enumerate(kinds) if other == kind]
            if len({keys[i].get(key) for i in members}) > 1:
                for i in members:
                    texts[i].append(f"{key.split('.')[-1]} {keys[i].get(key, 'default')}")
    return [", ".join(text) for text in texts]


def base_of(series: pd.DataFrame) -> pd.Series | None:
    """The point that speed-ups of `series` refer to: of those that ended well the one with the fewest ranks."""
    good = series[(series["status"] == "ok") & series["samples_per_second"].notna()]
    return None if good.empty else good.sort_values("num_ranks").iloc[0]
