"""Fit the section [transformer_costs] of a cluster file to measured iterations; judge the fit on rows it did not see.

    python -m strata_analysis.fit_transformer --cluster experiments/clusters/x.toml [--write] rows.csv [more.csv ...]

Minimised is a robust sum of ln(predicted / measured), predicted by the closed form of transformer_iteration.py, plus
the distance of each parameter from PRIORS in units of its width. Two fits are made. First the formula alone, every
table weighing alike; its loss is Cauchy's, so that a run or a shape that the formula does not explain pulls the less
the worse it fits. Then, by soft L1, which lets ratios follow such shapes, one ratio a layer shape (hidden size, heads,
sequence, tensor degree) and micro-batch, and what is no part of a layer; the layer's parameters stay, so that a shape
nobody measured is predicted as the formula's own fit predicts it. Ratios shrink to 1 where rows are few; a table then
weighs as the square root of its rows, because ratios that follow the noise of few rows predict others worse.

Judged by cross-validation: FOLDS fits, each without the rows whose configuration's SHA-256 falls into its fold, so that
every row is predicted once by a fit that did not see it. For the formula also with whole layer shapes left out. Forms
are compared by --inside, which never predicts a row of the first fold. What
--write puts into the file is fitted to all rows given; its intervals are as wide as errors of rows, of cells (a shape
and micro-batch) and of shapes that fits did not see. --coverage judges these in turn: an interval made without a fold
should hold the fold's rows.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from strata_analysis.fitted_cluster import CELL, COSTS, INTERVALS, SHAPE, read_fitted_cluster
from strata_analysis.held_out_intervals import interval_widths
from strata_analysis.load import LoadError
from strata_analysis.measured_runs import parse_measured_runs, read_text
from strata_analysis.validate import predicted_runs, summary, with_interval

FOLDS = 4
# By several, because the few rows of several nodes fall well or ill: their mean over shapes left out differs by a point
# from one division to the next.
DIVISIONS = ("inside", "inside2", "inside3")
LAYOUT = [*SHAPE, "layers", "data_parallelism", "pipeline_parallelism"]
CONFIGURATION = [*CELL, "num_gpus", "global_batch", "layers", "data_parallelism", "pipeline_parallelism"]
# Centre and width (of the logarithm) of what a parameter is expected to be on A100 before any row is seen: GEMM and
# streaming efficiencies of large kernels, NVLink's NCCL bandwidth and the time of small all-reduces, four NICs of
# 23 GB/s.
PRIORS = {
    "product_share": (0.75, 0.2),
    "small_tile_share": (0.8, 0.1),
    "memory_share": (0.75, 0.3),
    "launch_seconds": (3.0e-3, 0.5),
    "full_node_launch_factor": (1.2, 0.2),
    "unfused_softmax_seconds": (1.0e-3, 0.5),
    "launch_overlap_exponent": (7.0, 0.4),
    "tensor_latency_seconds": (6e-5, 0.15),
    "tensor_bandwidth_bytes_per_second": (180e9, 0.4),
    "slot_seconds": (1.0e-3, 0.7),
    "node_bandwidth_bytes_per_second": (92e9, 0.4),
    "unsharded_head_share": (0.35, 0.4),
    "step_seconds": (2e-3, 1.0),
}
NAMES = list(COSTS)
# Those before this one make up a layer's time.
IS_OF_LAYER = np.arange(len(NAMES)) < NAMES.index("slot_seconds")
CENTRE = np.log([PRIORS[name][0] for name in NAMES])
WIDTH = np.array([PRIORS[name][1] for name in NAMES])
# No share of a nameplate is fitted above this, nor the rate inside a node above this share of A100's NVLink.
LARGEST_SHARE = 0.95
LARGEST = {name: LARGEST_SHARE for name in NAMES if name.endswith("_share")}
LARGEST["tensor_bandwidth_bytes_per_second"] = LARGEST_SHARE * 300e9
# Widths of the ratios' logarithm: of a layer shape, and of a micro-batch at this shape.
SHAPE_WIDTH = 0.1
MICRO_BATCH_WIDTH = 0.03
# Of the width of a parameter that a fit with ratios leaves where it is.
HELD = 1e-4
PRIOR_WEIGHT = 0.1
ROBUST_SCALE = 0.02
MAX_EVALUATIONS = 80


@dataclass
class Costs:
    """A point of the fit: parameters' logarithms, and ln(ratio) by layer shape and micro-batch."""

    parameters: np.ndarray
    ratios: dict[tuple[int, ...], float]
    intervals: tuple[dict[str, float], ...] = ()

    def toml(self, text: str) -> str:
        """@p text, a cluster file, with these values in its section; its comments stay."""
        for name, value in zip(NAMES, np.exp(self.parameters), strict=True):
            text, found = re.subn(rf"(?m)^{name} = \S+", f"{name} = {value:.6g}", text)
            if found != 1:
                raise SystemExit(f"{name}: {found} lines in the cluster file where one is needed")
        if not self.intervals:
            text = re.sub(rf"(?m)^({'|'.join(INTERVALS)}) = .*\n", "", text)
        for name, widths in zip(INTERVALS, self.intervals, strict=False):
            said = ", ".join(f"{known} = {width:.4g}" for known, width in widths.items())
            text, found = re.subn(rf"(?m)^{name} = {{[^}}]*}}", f"{name} = {{ {said} }}", text)
            if found != 1:
                raise SystemExit(f"{name}: {found} lines in the cluster file where one is needed")
        lines = [
            "  { "
            + ", ".join(f"{k} = {v}" for k, v in zip(CELL, cell, strict=True))
            + f", ratio = {np.exp(u):.5g} }},  # fitted"
            for cell, u in sorted(self.ratios.items())
        ]
        start = text.index("\nlayers = [")
        return text[:start] + "\n" + "\n".join(["layers = [  # fitted", *lines, "]"]) + "\n"


class Predictor:
    def __init__(self, cluster: Path, tables: list[Path]):
        self.cluster = read_fitted_cluster(cluster)
        self.runs = [parse_measured_runs(read_text(table), str(table)) for table in tables]

    def __call__(self, costs: Costs) -> list[pd.DataFrame]:
        """The rows of each table, with predictions and sensitivities."""
        values = dict(zip(NAMES, np.exp(costs.parameters), strict=True))
        ratios = {cell: float(np.exp(u)) for cell, u in costs.ratios.items()}
        cluster = replace(self.cluster, costs=values, ratios=ratios)
        # A step of the fit may try costs that overflow; least_squares then takes a shorter one.
        with np.errstate(over="ignore", invalid="ignore"):
            return [predicted_runs(runs, cluster, with_sensitivities=True) for runs in self.runs]


def errors(rows: pd.DataFrame) -> np.ndarray:
    return (rows["predicted"] / rows["measured"] - 1).to_numpy()


def fold_of(rows: pd.DataFrame, columns: list[str], salt: str = "") -> np.ndarray:
    """The fold of each row, from nothing but its own configuration; another salt, other folds."""
    texts = rows[columns].astype(str).agg("|".join, axis=1)
    return np.array([int(hashlib.sha256((salt + text).encode()).hexdigest(), 16) % FOLDS for text in texts])


def fit(predict: Predictor, seen: list[np.ndarray], start: Costs, with_ratios: bool) -> Costs:
    """@param seen of each table, a mask of the rows that the fit may see."""
    first = predict(start)
    cells = [[tuple(int(v) for v in row) for row in rows[CELL].to_numpy()] for rows in first]
    known: list[tuple[int, ...]] = []
    if with_ratios:
        known = sorted(
            {c for table, mask in zip(cells, seen, strict=True) for c, s in zip(table, mask, strict=True) if s}
        )
    shapes = sorted({c[:-1] for c in known})
    most = max(mask.sum() for mask in seen)
    weights = [(most / max(mask.sum(), 1)) ** (0.25 if with_ratios else 0.5) for mask in seen]
    num, num_shapes, num_cells = len(NAMES), len(shapes), len(known)

    def costs_of(z: np.ndarray) -> Costs:
        u = {c: z[num + shapes.index(c[:-1])] + z[num + num_shapes + i] for i, c in enumerate(known)}
        return Costs(z[:num], u)

    evaluated: dict[bytes, list[pd.DataFrame]] = {}

    def rows_at(z: np.ndarray) -> list[pd.DataFrame]:
        if z.tobytes() not in evaluated:
            evaluated.clear()
            evaluated[z.tobytes()] = predict(costs_of(z))
        return evaluated[z.tobytes()]

    width = np.r_[WIDTH, np.full(num_shapes, SHAPE_WIDTH), np.full(num_cells, MICRO_BATCH_WIDTH)]
    prior_centre = np.r_[CENTRE, np.zeros(num_shapes + num_cells)]
    if with_ratios:
        width[:num][IS_OF_LAYER] *= HELD
        prior_centre[:num][IS_OF_LAYER] = start.parameters[IS_OF_LAYER]
    prior_scale = PRIOR_WEIGHT / width

    def residuals(z: np.ndarray) -> np.ndarray:
        parts = [
            weight * np.log(rows["predicted"] / rows["measured"]).to_numpy()[mask]
            for rows, mask, weight in zip(rows_at(z), seen, weights, strict=True)
        ]
        return np.concatenate([*parts, prior_scale * (z - prior_centre)])

    def jacobian(z: np.ndarray) -> np.ndarray:
        blocks = []
        for rows, mask, weight, table in zip(rows_at(z), seen, weights, cells, strict=True):
            block = np.zeros((len(rows), len(z)))
            block[:, :num] = rows[NAMES].to_numpy()
            for i in np.flatnonzero(mask) if known else ():
                share = rows["layers_share"].iloc[i]
                block[i, num + shapes.index(table[i][:-1])] = share
                block[i, num + num_shapes + known.index(table[i])] = share
            blocks.append(weight * block[mask])
        return np.vstack([*blocks, np.diag(prior_scale)])

    upper = np.full(num + num_shapes + num_cells, np.inf)
    upper[[NAMES.index(name) for name in LARGEST]] = np.log(list(LARGEST.values()))
    z = np.minimum(np.r_[start.parameters, np.zeros(num_shapes + num_cells)], upper - 1e-3)
    # Far from a start Cauchy's loss leaves rows aside that a better one explains: it goes on where soft L1 has ended.
    for loss in ("soft_l1",) if with_ratios else ("soft_l1", "cauchy"):
        z = least_squares(
            residuals,
            z,
            jac=jacobian,
            bounds=(-np.inf, upper),
            loss=loss,
            f_scale=ROBUST_SCALE,
            max_nfev=MAX_EVALUATIONS,
            x_scale=width,
        ).x
    return costs_of(z)


def held_out(
    predict: Predictor,
    start: Costs,
    columns: list[str],
    with_ratios: bool,
    among: list[np.ndarray] | None = None,
    salt: str = "",
) -> list[pd.DataFrame]:
    """Each table's rows, each predicted by the fit that left its fold out.

    @param among masks of the rows that take part."""
    tables = predict(start)
    among = among or [np.ones(len(rows), bool) for rows in tables]
    folds = [fold_of(rows, columns, salt) for rows in tables]
    parts: list[list[pd.DataFrame]] = [[] for _ in tables]
    for fold in range(FOLDS):
        seen = [(f != fold) & part for f, part in zip(folds, among, strict=True)]
        costs = fit(predict, seen, start, False)
        if with_ratios:
            costs = fit(predict, seen, costs, True)
        for rows, f, part, found in zip(predict(costs), folds, among, parts, strict=True):
            found.append(rows[(f == fold) & part])
    return [pd.concat(found).sort_index() for found in parts]


def judged(*arguments, **options) -> list[np.ndarray]:
    """Errors of each table's rows, as of held_out()."""
    return [errors(rows) for rows in held_out(*arguments, **options)]


def intervals(
    predict: Predictor, start: Costs, among: list[np.ndarray] | None = None, salt: str = ""
) -> tuple[dict[str, float], ...]:
    """FittedCluster.intervals: from rows, cells and shapes held out, because what comes later may lack each."""
    rows = [
        table
        for columns in (CONFIGURATION, CELL, SHAPE)
        for table in held_out(predict, start, columns, True, among, salt)
    ]
    return interval_widths(pd.concat(rows), predict.cluster.devices_per_node)


def covered(predict: Predictor, start: Costs) -> list[np.ndarray]:
    """Of each table's rows, whether the interval holds it of a fit, with intervals, that saw nothing of its fold."""
    tables = predict(start)
    folds = [fold_of(rows, CONFIGURATION) for rows in tables]
    found = [np.zeros(len(rows), bool) for rows in tables]
    for fold in range(FOLDS):
        seen = [f != fold for f in folds]
        formula = fit(predict, seen, start, False)
        widths = intervals(predict, formula, seen, "covered")
        costs = fit(predict, seen, formula, True)
        cluster = replace(predict.cluster, intervals=widths)
        for rows, f, is_inside in zip(predict(costs), folds, found, strict=True):
            rows = with_interval(rows, cluster)
            is_inside[f == fold] = rows["measured"].between(rows["at_least"], rows["at_most"]).to_numpy()[f == fold]
    return found


def judged_inside(predict: Predictor) -> list[tuple[str, list[np.ndarray]]]:
    """What forms are compared by: cross-validation inside the fit part, which is every fold but the first.

    Rows, parallel layouts (rows that differ in the micro-batch alone stay together) and layer shapes are left out; the
    errors of all DIVISIONS follow one another."""
    start = Costs(CENTRE, {})
    among = [fold_of(rows, CONFIGURATION) != 0 for rows in predict(start)]
    start = fit(predict, among, start, False)

    def all_divisions(columns: list[str], with_ratios: bool) -> list[np.ndarray]:
        found = [judged(predict, start, columns, with_ratios, among, salt) for salt in DIVISIONS]
        return [np.concatenate(of_table) for of_table in zip(*found, strict=True)]

    return [
        (f"{what}: {part} of the fit part held out", all_divisions(columns, with_ratios))
        for what, part, columns, with_ratios in (
            ("formula and ratios", "rows", CONFIGURATION, True),
            ("formula and ratios", "layouts", LAYOUT, True),
            ("formula", "layer shapes", SHAPE, False),
        )
    ]


def show(tables: list[Path], found: list[tuple[str, list[np.ndarray]]]) -> None:
    for title, parts in found:
        print(title)
        for table, values in zip(tables, parts, strict=True):
            print(f"  {table.name:<27} {summary(values)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fit [transformer_costs] of a cluster file to measured iterations.")
    parser.add_argument("tables", nargs="+", type=Path, help="measured runs (CSV), as of `strata validate`")
    parser.add_argument("--cluster", required=True, type=Path, help="its file; the present values do not matter")
    parser.add_argument("--write", action="store_true", help="put the fit to all rows into the cluster file")
    parser.add_argument("--inside", action="store_true", help="compare forms: only cross-validate inside the fit part")
    parser.add_argument("--coverage", action="store_true", help="only count the held-out rows that intervals hold")
    words = parser.parse_args()
    try:
        predict = Predictor(words.cluster, words.tables)
    except LoadError as error:
        raise SystemExit(f"fit_transformer: {error}") from None
    if words.inside:
        show(words.tables, judged_inside(predict))
        return 0
    start = Costs(CENTRE, {})
    if words.coverage:
        for table, is_inside in zip(words.tables, covered(predict, start), strict=True):
            print(f"{table.name:<29} {is_inside.sum()} of {len(is_inside)} rows lie in their interval")
        return 0
    everything = [np.ones(len(rows), bool) for rows in predict(start)]

    formula = fit(predict, everything, start, False)
    full = fit(predict, everything, formula, True)
    folds = [fold_of(rows, CONFIGURATION) for rows in predict(start)]
    rows_held_out = judged(predict, formula, CONFIGURATION, True)
    found = [
        ("formula, fitted to all rows", [errors(rows) for rows in predict(formula)]),
        (f"formula, layer shapes held out ({FOLDS} folds)", judged(predict, formula, SHAPE, False)),
        (f"formula, rows held out ({FOLDS} folds)", judged(predict, formula, CONFIGURATION, False)),
        ("formula and ratios, fitted to all rows", [errors(rows) for rows in predict(full)]),
        (f"formula and ratios, rows held out ({FOLDS} folds)", rows_held_out),
        ("of these, the first fold", [e[f == 0] for e, f in zip(rows_held_out, folds, strict=True)]),
    ]
    show(words.tables, found)
    if words.write:
        many = [(rows["num_gpus"] > predict.cluster.devices_per_node).to_numpy() for rows in predict(start)]
        if all(np.any(np.concatenate(many) == place) for place in (False, True)):  # else nothing tells of one of them
            full.intervals = intervals(predict, formula)
        words.cluster.write_text(full.toml(words.cluster.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
