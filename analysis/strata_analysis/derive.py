"""The derived numbers of results-schema/ for each attempt, and what names and distinguishes it in a table or figure."""

from __future__ import annotations

import math

import pandas as pd

from strata_analysis.load import INDEX, Results
from strata_analysis.peaks import with_best_peaks
from strata_analysis.series import keys_of, labels_of
from strata_analysis.statistics import CONFIDENCE, Median, median, num_outliers, rate

PARTS = ("compute", "communication", "exposed_communication", "other")
# Where the first and the second part of a step end if its kernels come first and then what nothing hides; of the rank
# whose step took longest, so that the third part ends with the step.
ENDS = ("compute_end_seconds", "exposed_end_seconds")


def derive(results: Results, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """`results.points` with derived columns, each a number with `_low` and `_high` of its interval:

    step_seconds, samples_per_second, model_flops_per_second, mfu; and samples_per_second_by_clock (with what passes
    between steps), compute_seconds, exposed_communication_seconds,
    communication_seconds, other_seconds (medians, each of the rank with most of it); ENDS (medians); busy_share (median
    of the share of time with a kernel running, mean over ranks; not SM efficiency); joules_per_sample;
    num_outliers; link (emulated link in words, or empty); and the columns of `with_best_peaks`, of all attempts in
    `results`.
    """
    points = with_best_peaks(results.points)
    rows = []
    by_attempt = dict(tuple(results.steps.groupby(INDEX)))
    for _, point in points.iterrows():
        all_steps = by_attempt.get(tuple(point[key] for key in INDEX), results.steps.iloc[:0])
        steps = all_steps[all_steps["phase"] == "measured"]
        columns = _from_step_seconds(point, median(steps["step_seconds_max"], confidence))
        for name in PARTS:
            columns[f"{name}_seconds"] = median(steps[f"{name}_seconds"], confidence).value
        compute = steps["slowest_rank_compute_seconds"]
        ends = (compute, compute + steps["slowest_rank_exposed_seconds"])
        columns |= dict(zip(ENDS, (median(end, confidence).value for end in ends), strict=True))
        columns["busy_share"] = median(steps["busy_share"], confidence).value
        samples = steps["num_samples"].sum()
        columns["joules_per_sample"] = steps["energy_joules"].sum(skipna=False) / samples if samples else math.nan
        columns["samples_per_second_by_clock"] = _rate_by_clock(all_steps)
        columns["num_outliers"] = num_outliers(steps["step_seconds_max"])
        columns["link"] = link_in_words(point)
        rows.append(columns)
    return pd.concat([points.reset_index(drop=True), pd.DataFrame(rows)], axis=1)


def by_point(results: Results, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """One row a point, with the columns of `derive` and

    num_runs (the runs that count), num_disturbed (how many of them were disturbed), series (the name of its series).

    One run: its own numbers. Several (the blocks of a head-to-head job): the median of the runs' medians with an
    interval over runs, because steps of one run are correlated and say little about the next run; facts of the last.
    """
    attempts = derive(results, confidence)
    rows = []
    for _, runs in attempts[attempts["counted"]].groupby(INDEX[:2], sort=False):
        point = runs.iloc[-1].copy()
        point["num_runs"] = len(runs)
        point["num_disturbed"] = runs["disturbed"].sum()
        if len(runs) > 1:
            for name, value in _from_step_seconds(point, median(runs["step_seconds"], confidence)).items():
                point[name] = value
            for name in (*(f"{part}_seconds" for part in PARTS), *ENDS):
                point[name] = median(runs[name], confidence).value
            point["joules_per_sample"] = median(runs["joules_per_sample"], confidence).value
            point["samples_per_second_by_clock"] = median(runs["samples_per_second_by_clock"], confidence).value
            point["num_outliers"] = runs["num_outliers"].sum()
        rows.append(point)
    points = pd.DataFrame(rows).infer_objects().reset_index(drop=True)
    points["series"] = labels_of(points)
    return points


def _from_step_seconds(point: pd.Series, seconds: Median) -> dict[str, float]:
    samples = rate(point["num_samples_per_step"], seconds)
    flops = rate(point["num_samples_per_step"] * point["flops_per_sample"], seconds)
    peak = point["num_ranks"] * point["best_peak_flops_per_second"]
    columns = {}
    for name, value in (("step_seconds", seconds), ("samples_per_second", samples), ("model_flops_per_second", flops)):
        columns |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
    for end in ("", "_low", "_high"):
        columns[f"mfu{end}"] = columns[f"model_flops_per_second{end}"] / peak if peak else math.nan
    return columns


def _rate_by_clock(steps: pd.DataFrame) -> float:
    """Samples of the steps behind the first measured one, up to the last, over the time between the ends of these two;
    NaN with fewer than two. `steps` of one attempt in their order, those between them that are not measured included.
    """
    measured = (steps["phase"] == "measured").to_numpy().nonzero()[0]
    if len(measured) < 2:
        return math.nan
    between = steps.iloc[measured[0] : measured[-1] + 1]
    elapsed = between["unix_seconds"].iloc[-1] - between["unix_seconds"].iloc[0]
    return between["num_samples"].iloc[1:].sum() / elapsed if elapsed > 0 else math.nan


def link_in_words(point: pd.Series) -> str:
    def words(link: str) -> str:
        alpha, rate_bytes = (point[f"emulated_{link}_{key}"] for key in ("alpha_seconds", "bytes_per_second"))
        return "" if math.isnan(rate_bytes) else f"{1e6 * alpha:.6g} µs, {8e-9 * rate_bytes:.3g} Gbit/s"

    link, inside = words("link"), words("inside")
    if not link:
        return ""
    return f"emulated link {link}" + (f"; inside nodes {inside}" if inside else "")


def key_column(points: pd.DataFrame, key: str, default: str) -> list[str]:
    """What each point was asked for under `key`, strings without their quotes."""
    return [keys_of(point).get(key, default).strip('"') for _, point in points.iterrows()]


def base_of(series: pd.DataFrame) -> pd.Series | None:
    """The point that speed-ups of `series` refer to: of those that ended well the one with the fewest ranks."""
    good = series[(series["status"] == "ok") & series["samples_per_second"].notna()]
    return None if good.empty else good.sort_values("num_ranks").iloc[0]
