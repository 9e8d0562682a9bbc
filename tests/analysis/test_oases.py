"""Oases' printed tables beside versions of its experiments with one micro-batch."""

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
    assert "oases-4096 on rtx3090-pcie with the degrees of table 6" in text
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
    comparison = oases.figure_4(by_point(small_version("oases/figure_4", OF_FIGURE_4)))
    assert len(comparison.rows) == 6
    assert not comparison.rows["simulated"].isna().any()
    over_megatron = comparison.rows[comparison.rows["over"] == "megatron"]["simulated"]
    assert (over_megatron > 1.0).all()
    assert sum("alpa" in line and "merak" in line for line in comparison.statements[:-1]) == 14
    assert comparison.statements[-1].startswith("Baselines here: megatron, merak, decomposed, alpa")


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
    comparison = oases.figure_5(by_point(small_version("oases/figure_5", small)))
    rows = comparison.rows.set_index(["over", "bound"])["simulated"]
    assert set(comparison.rows["cluster"]) == {"both"}
    assert 1.0 < rows["megatron", "least"] <= rows["megatron", "most"]
    assert rows["best baseline", "least"] < rows["megatron", "least"]
    assert rows["best baseline", "least"] <= rows["best baseline", "most"] < rows["megatron", "most"]
    assert sum("decomposed" in line and "alpa" in line for line in comparison.statements[:-1]) == 12
    assert comparison.statements[-1].startswith("Baselines here: megatron, merak, decomposed, alpa")
