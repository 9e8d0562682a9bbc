"""The scripts of experiments/auto: what they say of a CSV, and how they disturb a cluster."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "auto"


@pytest.fixture(scope="module", autouse=True)
def scripts():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


def script(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows():
    """Two points: of one all is known, and nothing fits without states; of the other one answer came too late."""
    dimensions = script("every_experiment").DIMENSIONS
    first = {"file": "amsp/x.toml", "point": 0, "model": "m", "ranks": 8}
    second = first | {"point": 1}
    found = [
        first | {"asks": "full", "seconds": 1.0, "best": "zero1", "best_seconds": 1.25, "gap": 0.1},
        first | {"asks": "seedless", "seconds": 1.5},
        second | {"asks": "full", "seconds": 2.0, "best": "mics", "best_seconds": 2.0, "gap": 0.3},
        second | {"asks": "seedless", "seconds": 2.0},
        second | {"asks": "without stages", "words": "no plan within 60 s"},
    ]
    found += [first | {"asks": f"without {name}", "seconds": 1.0} for name in dimensions if name != "states"]
    found.append(first | {"asks": "without states", "words": "strata: nothing fits"})
    return pd.DataFrame(found)


def test_experiments_are_told_by_ratio_to_the_best_mode():
    ablation = script("ablation")
    (row,) = ablation.against_others(ablation.by_point(rows())).to_dict("records")
    assert (row["experiment"], row["points"], row["nothing fits"]) == ("amsp/x", 2, 0)
    assert (row["least"], row["median"], row["most"]) == (1.0, 1.125, 1.25)
    assert (row["asked without candidates"], row["behind the best mode then"]) == (2, 1)
    assert row["least then"] == pytest.approx(1.25 / 1.5)
    assert row["candidates helped"] == 1


def test_a_dimension_is_judged_by_points_of_which_all_is_known():
    ablation = script("ablation")
    worths = ablation.worth_by_dimension(ablation.by_point(rows()))
    assert list(worths.index) == [("amsp/x.toml", 0)]
    table = ablation.summarized(worths).set_index("without")
    assert table.loc["states", "nothing fits"] == 1
    assert table.loc["stages", "nothing fits"] == 0
    assert table.loc["stages", "most"] == 1.0
    assert np.isnan(table.loc["states", "geometric mean"])


def test_the_figure_has_a_dot_a_point_and_dimension():
    ablation = script("ablation")
    figure = ablation.drawn(ablation.worth_by_dimension(ablation.by_point(rows())))
    fits, fits_not, _ = figure.axes[0].lines
    assert sorted(fits.get_xdata()) == [1.0] * 7
    assert len(fits_not.get_xdata()) == 1


WORDS = "data 8; of 9 plans 7 were simulated; kernels alone take at least 1 s: gap 0.2"
ALONE = "; without other modes' plans as candidates: "


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (WORDS + ALONE + "1.5 s", [("full", 1.25, ""), ("seedless", "1.5", "")]),
        (WORDS + ALONE + "nothing fits", [("full", 1.25, ""), ("seedless", "", "nothing fits")]),
        (WORDS, [("full", 1.25, "")]),
    ],
)
def test_one_answer_also_tells_what_there_is_without_candidates(tmp_path, words, expected):
    plan = f'[why]\npredicted_seconds = 1.25\nbinding = "{words}"\nsingles = ["ddp: 2 s, 1 GiB", "3d: it fits not"]\n'
    rows = answers(tmp_path, f"cat <<'END'\n{plan}END")
    assert [(row["asks"], row["seconds"], row["words"].replace("data 8", "")) for row in rows] == expected
    assert (rows[0]["best"], rows[0]["best_seconds"], rows[0]["gap"]) == ("ddp", 2.0, "0.2")


def test_where_nothing_fits_nothing_does_without_candidates(tmp_path):
    nothing = "auto on 8 ranks: nothing fits into a device memory of 1.00 GiB"
    rows = answers(tmp_path, f"echo '{nothing}' >&2; exit 2")
    assert [(row["asks"], row["words"]) for row in rows] == [("full", nothing), ("seedless", nothing)]
    rows = answers(tmp_path, "echo 'unknown model' >&2; exit 2")
    assert [(row["asks"], row["words"]) for row in rows] == [("full", "unknown model")]


def test_an_ablation_has_a_row_a_dimension(tmp_path):
    lines = [
        "stages: 1.5 s, 0.75 GiB, 1.2 times as long: data 8; p 8x1",
        "slices: auto on 8 ranks: nothing fits into a device memory",
    ]
    plan = f'[why]\npredicted_seconds = 1.25\nbinding = "{WORDS}{ALONE}1.5 s"\nablation = {lines}\n'
    rows = answers(tmp_path, f"cat <<'END'\n{plan}END", "ablation")
    assert [(row["asks"], row["seconds"], row["words"]) for row in rows] == [
        ("full", 1.25, "data 8"),
        ("seedless", "1.5", ""),
        ("without stages", "1.5", "data 8; p 8x1"),
        ("without slices", "", "auto on 8 ranks: nothing fits into a device memory"),
    ]


def test_what_does_not_fit_with_all_dimensions_does_not_without_one(tmp_path):
    nothing = "auto on 8 ranks: nothing fits into a device memory of 1.00 GiB"
    module = script("every_experiment")
    rows = answers(tmp_path, f"echo '{nothing}' >&2; exit 2", "ablation")
    assert {row["asks"] for row in rows} == {"full", "seedless", *module.ABLATION}
    assert {row["words"] for row in rows} == {nothing}


def answers(folder, script_text, asks="full"):
    """What is told of a point by a `strata` that does this."""
    strata = folder / "strata"
    strata.write_text(f"#!/bin/sh\n{script_text}\n")
    strata.chmod(0o755)
    point = {"file": "x.toml", "point": 3, "ranks": 8, "keys": {"cluster": "c", "train.global_batch": 16}}
    return script("every_experiment").ask(point, asks, str(strata), 60.0)


def test_a_disturbed_cluster_has_other_rates_and_nothing_else():
    text = script("disturbed").disturbed(
        'name = "c"\nmemory_bandwidth_bytes_per_second = 1e9\n'
        "intra_node = { latency_seconds = 1e-5, bandwidth_bytes_per_second = 2e9 }\n"
        "inter_node = { latency_seconds = 1e-4, bandwidth_bytes_per_second = 1e8 }\n"
        "[peak_flops_per_second]\nf32 = 1e12\n",
        compute=1.5,
        intra_node=0.5,
        inter_node=2.0,
    )
    assert "memory_bandwidth_bytes_per_second = 1500000000.0\n" in text
    assert "intra_node = { latency_seconds = 1e-5, bandwidth_bytes_per_second = 1000000000.0 }" in text
    assert "inter_node = { latency_seconds = 1e-4, bandwidth_bytes_per_second = 200000000.0 }" in text
    assert text.endswith("f32 = 1500000000000.0\n")


def test_numbers_of_micro_batches_that_a_file_fixes_are_among_those_of_the_point_that_leaves_them_open():
    every_experiment = script("every_experiment")
    fixed, other_batch = ({"train.global_batch": batch, "train.micro_batches": 4} for batch in (8, 16))
    points = [{"point": 0, "keys": fixed}, {"point": 1, "keys": {"train.global_batch": 8}}]
    points.append({"point": 2, "keys": other_batch})
    assert [point["point"] for point in every_experiment.with_open_micro_batches(points)] == [1, 2]
