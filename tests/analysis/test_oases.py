"""Oases' printed tables beside versions of its experiments with one micro-batch."""

import re

import pandas as pd
import pytest
from drawn import artists
from strata_analysis.derive import by_point
from strata_analysis.figures.oases import figure_4
from strata_analysis.published import oases
from strata_analysis.table import short_table

ONE_MICRO_BATCH = (("micro_batches = 20", "micro_batches = 1"),)
OF_TABLE_3 = (
    *ONE_MICRO_BATCH,
    ("2560, 2560, 2560, 2560, 2560, 2560", "128, 128, 128, 128, 128, 128"),
    ("640, 640, 640, 640, 640, 640", "32, 32, 32, 32, 32, 32"),
    ("160, 160, 160, 160, 160, 160", "8, 8, 8, 8, 8, 8"),
)
OF_TABLE_2 = (
    *ONE_MICRO_BATCH,
    (
        "[5120, 5120, 2560, 2560, 640, 640, 640, 640, 160, 160, 160, 160, 160, 160]",
        "[256, 256, 128, 128, 32, 32, 32, 32, 8, 8, 8, 8, 8, 8]",
    ),
)


OF_FIGURE_4 = (
    *ONE_MICRO_BATCH,
    *(
        (", ".join(5 * [str(batch)]), ", ".join(5 * [str(small)]))
        for batch, small in ((5120, 256), (2560, 128), (640, 32), (160, 8))
    ),
)


@pytest.fixture(scope="module")
def table_3(small_version):
    return small_version("oases/table_3", OF_TABLE_3)


def test_every_column_of_table_3_has_its_point(table_3):
    text = short_table(table_3)
    rows = oases.table_3(by_point(table_3)).rows
    assert len(rows) == 30
    assert not rows["simulated"].isna().any()
    assert "2 sub-batches of 1 samples of a group of ranks" in text, "8192's printed degrees are refused"
    assert re.search(r"oases-4096 on rtx3090-pcie with the degrees of table 6: [\d.]+ simulated, [\d.]+ s a step", text)
    assert "oases-8192 on rtx3090-pcie with the degrees of table 6" not in text


def test_parts_without_planner_rise_in_every_row(table_3):
    rows = oases.table_3(by_point(table_3)).rows
    for _, members in rows.groupby(["cluster", "model"]):
        assert members["simulated"].is_monotonic_increasing
        assert list(members["strategy"]) == ["megatron", "merak", "cross-pass", "fine-grained", "planner"]


def test_devices_are_busier_with_oases(small_version):
    rows = oases.table_2(by_point(small_version("oases/table_2", OF_TABLE_2))).rows
    assert len(rows) == 14
    assert (rows["simulated"] > 1.0).all()


def test_an_iteration_is_shorter_than_the_communication_of_megatron(small_version):
    comparison = oases.figure_2(by_point(small_version("oases/figure_2")))
    assert comparison.rows["simulated"].between(0.5, 0.8).all()
    assert sum("is shorter than Megatron's communication" in line for line in comparison.statements) == 2


def test_oases_is_beside_the_best_of_four_baselines(small_version):
    points = by_point(small_version("oases/figure_4", OF_FIGURE_4))
    comparison = oases.figure_4(points)
    assert len(comparison.rows) == 6
    assert not comparison.rows["simulated"].isna().any()
    over_megatron = comparison.rows[comparison.rows["over"] == "megatron"]["simulated"]
    assert (over_megatron > 1.0).all()
    assert comparison.statements == ["Baselines here: Megatron, Merak, Wang et al., Alpa."]
    models = oases.figure_4_models(points).rows
    assert list(models["model"].drop_duplicates()) == [
        f"oases-{width}" for width in (1024, 2048, 3072, 4096, 6144, 8192, 12288)
    ]
    assert list(models["cluster"]) == 7 * ["rtx3090-nvlink", "rtx3090-pcie"]
    best = models[["Megatron", "Merak", "Wang et al.", "Alpa"]].max(axis="columns")
    assert models["over the best baseline"].to_numpy() == pytest.approx((models["Oases"] / best).to_numpy())
    least = comparison.rows[(comparison.rows["over"] == "best baseline") & (comparison.rows["bound"] == "least")]
    assert least["simulated"].min() == pytest.approx(models["over the best baseline"].min())


def test_oases_is_drawn_over_the_best_of_four_baselines(small_version):
    points = by_point(results := small_version("oases/figure_4", OF_FIGURE_4))
    figures = figure_4.draw(results, points)
    drawn = artists(figures, "speedup")
    rows = oases.figure_4_throughputs(points).set_index(["cluster", "model"])
    assert len(rows) == 14
    for cluster, model in rows.index:
        heights = {name: drawn[f"{cluster}/{model}/{name}"].get_height() for name in (*oases.BASELINES, "oases")}
        assert max(heights[name] for name in oases.BASELINES) == pytest.approx(1.0)
        row = rows.loc[(cluster, model)]
        assert heights["oases"] / heights["megatron"] == pytest.approx(row["oases"] / row["megatron"])
    band = artists(figures, "printed")["rtx3090-pcie"]
    extents = band.get_extents().transformed(band.axes.transData.inverted())
    assert (extents.y0, extents.y1) == pytest.approx((1.20, 1.48))


def test_inside_stages_oases_is_beside_four_baselines_of_both_clusters_together(small_version):
    """Of four blocks a model, a stage each, and few micro-batches."""

    def lines_of_six(*numbers):
        return "".join(f"  {', '.join(6 * [str(number)])},\n" for number in numbers)

    small = (
        ("[data]", "[model]\nlayers = 4\n\n[data]"),
        (lines_of_six(8, 16, 32, 16, 32, 64), lines_of_six(4, 8, 8, 4, 8, 8)),
    )
    points = by_point(small_version("oases/figure_5", small))
    comparison = oases.figure_5(points)
    rows = comparison.rows.set_index(["over", "bound"])["simulated"]
    assert set(comparison.rows["cluster"]) == {"both"}
    assert 1.0 < rows["megatron", "least"] <= rows["megatron", "most"]
    assert rows["best baseline", "least"] < rows["megatron", "least"]
    assert rows["best baseline", "least"] <= rows["best baseline", "most"] < rows["megatron", "most"]
    batches = oases.figure_5_batches(points)
    assert len(batches.rows) == 12
    assert list(batches.rows["batch"]) == 2 * [32, 32, 64, 64, 128, 128]
    assert sum("crossed passes alone over the best baseline" in line for line in batches.statements) == 2


def test_what_did_not_run_is_said_by_how_it_ended():
    points = pd.DataFrame(
        {
            "experiment_name": "oases_figure_5",
            "status": ["ok", "oom", "oom", "refused"],
            "strategy_name": ["megatron", "oases", "oases", "alpa"],
            "model_name": "oases-39.1b",
        }
    )
    assert oases.failures_in_words(points, "oases_figure_5") == [
        "OOM: Oases of oases-39.1b (2 points).",
        "N/A: Alpa of oases-39.1b (1 points).",
    ]


def test_weak_scaling_is_over_the_fewest_gpus(small_version):
    small = (*ONE_MICRO_BATCH, ("[80, 160, 320, 640]", "[4, 8, 16, 32]"))
    rows = oases.figure_7(by_point(small_version("oases/figure_7", small))).rows
    assert list(rows["gpus"]) == ["4", "8", "16", "32"]
    for name in ("Megatron", "Oases"):
        efficiencies = rows[f"efficiency of {name}"]
        assert efficiencies[0] == 1.0
        assert efficiencies[3] == pytest.approx(rows[name][3] / (8 * rows[name][0]))


def test_table_5_has_printed_and_searched_degrees(small_version):
    small = (
        ("[data]", "[model]\nlayers = 8\n\n[data]"),
        ("global_batch = 64", "global_batch = 16"),
        ("[16, 16, 16, 32, 32]", "[4, 4, 4, 8, 8]"),
    )
    rows = oases.table_5(by_point(small_version("oases/table_5", small))).rows
    assert len(rows) == 10
    of_18b = ["printed", "searched, a stage a place", "searched"]
    assert list(rows["degrees"]) == 2 * of_18b + 2 * of_18b[:2]
    printed = rows[rows["degrees"] == "printed"]
    assert list(printed["stages x tensor x data"]) == ["4 x 4 x 2", "4 x 4 x 2", "4 x 8 x 1", "4 x 8 x 1"]
    assert (printed["over printed"] == 1.0).all()
    assert (rows.loc[rows["degrees"] != "printed", "over printed"] >= 1.0).all()


@pytest.mark.parametrize(
    ("axes", "count", "words"),
    [
        ("stage = 8", 8, "8 x 2 x 2"),
        ("stage = 8", 24, "8 places of 3 x 2 x 2"),
        ("stage = 16, data = 2", 16, "16 x 1 x 2"),
    ],
)
def test_degrees_of_a_pipeline(axes, count, words):
    plan = f"mesh = {{ nodes = 8, ranks_per_node = 4, axes = {{ {axes} }} }}\nstages = {{ count = {count} }}\n"
    assert oases.pipeline_in_words(plan + '[[operators]]\nlayout = { p0 = "2x1" }\n') == words


def test_table_6_has_the_degrees_of_every_cost_and_search(small_version):
    small = (*ONE_MICRO_BATCH, ("[2560, 640, 160]", "[128, 32, 8]"))
    rows = oases.table_6(by_point(small_version("oases/table_6", small))).rows
    assert len(rows) == 18
    assert list(rows["model"].drop_duplicates()) == ["oases-2048", "oases-4096", "oases-8192"]
    assert list(rows["cost"]) == 3 * ["paper", "paper", "authors", "authors", "analytic", "analytic"]
    assert list(rows["search"]) == 9 * ["exact", "authors"]
    assert set(rows["paper"]) == {"2·8 + 4·16 of layers", "2·10 + 4·6 of layers", "4·2 + 8·6 of layers"}
    assert not (rows["planned"] == "-").any()
    # A whole layer is an attention and an MLP.
    for row in rows.itertuples():
        counts = sum(int(pair.split("·")[1]) for pair in row.planned.split(" of ")[0].split(" + "))
        layers = {"oases-2048": 24, "oases-4096": 16, "oases-8192": 8}[row.model]
        assert counts == (2 * layers if row.planned.endswith("of attentions and MLPs") else layers)
