"""The derived numbers of results-schema/ for each attempt, and what names and distinguishes it in a table or figure."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from strata_analysis.load import INDEX, Results, derived_once
from strata_analysis.peaks import with_best_peaks
from strata_analysis.series import keys_of, labels_of
from strata_analysis.statistics import CONFIDENCE, Median, median, num_outliers, rate

PARTS = ("compute", "communication", "exposed_communication", "other")
# Where the first and the second part of a step end if its kernels come first and then what nothing hides; of the rank
# whose step took longest, so that the third part ends with the step.
ENDS = ("compute_end_seconds", "exposed_end_seconds")
# What derived numbers need of /steps.
STEP_COLUMNS = (
    "phase",
    "unix_seconds",
    "step_seconds_max",
    *(f"{name}_seconds" for name in PARTS),
    "slowest_rank_compute_seconds",
    "slowest_rank_exposed_seconds",
    "busy_share",
    "num_samples",
    "energy_joules",
)


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
    numbers = Numbers(points, confidence)
    for steps in results.rows_of("steps", points, STEP_COLUMNS):
        numbers.add(steps)
    return numbers.beside(points)


class Numbers:
    """The derived columns, an attempt at a time, for whoever has the rows of /steps in hand anyway."""

    def __init__(self, points: pd.DataFrame, confidence: float = CONFIDENCE):
        """`points` have the columns of `with_best_peaks`."""
        self._facts = iter(points.to_dict("records"))
        self._confidence = confidence
        self._rows: list[dict] = []

    def add(self, steps: dict[str, np.ndarray]) -> None:
        """Rows of /steps, with STEP_COLUMNS, of the next of the points."""
        point = next(self._facts)
        self._rows.append(_from_steps(point, steps, self._confidence) | {"link": link_in_words(point)})

    def beside(self, points: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([points.reset_index(drop=True), pd.DataFrame(self._rows)], axis=1)


def _from_steps(point: dict, steps: dict[str, np.ndarray], confidence: float) -> dict[str, float]:
    """The columns that come from the rows of /steps of one attempt."""
    is_measured = steps["phase"] == "measured"
    measured = {name: values[is_measured] for name, values in steps.items()}
    columns = _from_step_seconds(point, median(measured["step_seconds_max"], confidence))
    for name in PARTS:
        columns[f"{name}_seconds"] = median(measured[f"{name}_seconds"], confidence).value
    compute = measured["slowest_rank_compute_seconds"]
    ends = (compute, compute + measured["slowest_rank_exposed_seconds"])
    columns |= dict(zip(ENDS, (median(end, confidence).value for end in ends), strict=True))
    columns["busy_share"] = median(measured["busy_share"], confidence).value
    samples = measured["num_samples"].sum()
    columns["joules_per_sample"] = measured["energy_joules"].sum() / samples if samples else math.nan
    columns["samples_per_second_by_clock"] = _rate_by_clock(steps, is_measured)
    columns["num_outliers"] = num_outliers(measured["step_seconds_max"])
    return columns


def by_point(results: Results, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """One row a point, with the columns of `derive` and

    num_runs (the runs that count), num_disturbed (how many of them were disturbed), series (the name of its series).

    One run: its own numbers. Several (the blocks of a head-to-head job): the median of the runs' medians with an
    interval over runs, because steps of one run are correlated and say little about the next run; facts of the last.
    """
    return derived_once(results, ("points", confidence), lambda: _by_point(results, confidence)).copy()


def _by_point(results: Results, confidence: float) -> pd.DataFrame:
    attempts = derive(results, confidence)
    num_runs, num_disturbed, of_several = {}, {}, {}  # by the last run
    for _, runs in attempts[attempts["counted"]].groupby(INDEX[:2], sort=False):
        last = runs.index[-1]
        num_runs[last], num_disturbed[last] = len(runs), int(runs["disturbed"].sum())
        if len(runs) > 1:
            of_several[last] = _over_runs(runs, confidence)
    points = attempts.loc[list(num_runs)].assign(num_runs=num_runs.values(), num_disturbed=num_disturbed.values())
    if of_several:
        numbers = pd.DataFrame.from_dict(of_several, orient="index")
        points.loc[numbers.index, numbers.columns] = numbers
    points = points.reset_index(drop=True)
    points["series"] = labels_of(points)
    return points


def _over_runs(runs: pd.DataFrame, confidence: float) -> dict[str, float]:
    """Numbers of a point that ran several times."""
    columns = _from_step_seconds(runs.iloc[-1], median(runs["step_seconds"], confidence))
    names = (*(f"{part}_seconds" for part in PARTS), *ENDS, "joules_per_sample", "samples_per_second_by_clock")
    columns |= {name: median(runs[name], confidence).value for name in names}
    return columns | {"num_outliers": runs["num_outliers"].sum()}


def _from_step_seconds(point: dict | pd.Series, seconds: Median) -> dict[str, float]:
    samples = rate(point["num_samples_per_step"], seconds)
    flops = rate(point["num_samples_per_step"] * point["flops_per_sample"], seconds)
    peak = point["num_ranks"] * point["best_peak_flops_per_second"]
    columns = {}
    for name, value in (("step_seconds", seconds), ("samples_per_second", samples), ("model_flops_per_second", flops)):
        columns |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
    for end in ("", "_low", "_high"):
        columns[f"mfu{end}"] = columns[f"model_flops_per_second{end}"] / peak if peak else math.nan
    return columns


def _rate_by_clock(steps: dict[str, np.ndarray], is_measured: np.ndarray) -> float:
    """Samples of the steps behind the first measured one, up to the last, over the time between the ends of these two;
    NaN with fewer than two. `steps` of one attempt in their order, those between them that are not measured included.
    """
    measured = is_measured.nonzero()[0]
    if len(measured) < 2:
        return math.nan
    between = slice(measured[0], measured[-1] + 1)
    seconds, samples = steps["unix_seconds"][between], steps["num_samples"][between]
    elapsed = seconds[-1] - seconds[0]
    return samples[1:].sum() / elapsed if elapsed > 0 else math.nan


def link_in_words(point: dict | pd.Series) -> str:
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
