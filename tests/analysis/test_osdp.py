"""OSDP's figures and printed speed-ups, from small versions of its experiments and from cells made by hand."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import artists
from matplotlib import pyplot
from strata_analysis.derive import by_point, key_column
from strata_analysis.figures.osdp import (
    figure_5,
    figure_5_equal_batch,
    figure_5_one_sample,
    figure_7,
    figure_8,
    figure_9,
    figure_9_one_sample,
)
from strata_analysis.figures.osdp.throughput import panels
from strata_analysis.published import osdp, published
from strata_analysis.table import short_table

ROOT = Path(__file__).parents[2]

MODELS = """  "mingpt-nd-48x1536", "mingpt-nd-96x1024", "mingpt-nd-96x1536",
  "mingpt-ws-2x6144", "mingpt-ws-4x6144", "mingpt-ws-4x8192", "mingpt-ws-2x12288",
  "mingpt-ic-24", "mingpt-ic-96",
"""
SMALLER = (
    (MODELS, '  "mingpt-nd-48x1536", "mingpt-ws-2x6144",\n'),
    ('"resources.memory_gib" = [8, 16]', '"resources.memory_gib" = [2, 16]'),
    (
        "train.global_batch > 96 && model.name != 'mingpt-ws-2x6144'",
        "train.global_batch > 24 || train.micro_batches == 0 && train.global_batch != 16"
        " || train.micro_batches == 0 && model.name != 'mingpt-ws-2x6144'",
    ),
)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def points(small_version):
    return by_point(small_version("osdp/figure_5", SMALLER))


def test_a_cell_is_the_fastest_point_that_fits(points):
    cells = osdp.cells(points, "osdp_figure_5")
    limits_of_points = key_column(points, "resources.memory_gib", "")
    strategies = osdp.tried(points, "osdp_figure_5")["strategy"]
    asked = set(zip(points["model_name"], limits_of_points, strategies, strict=True))
    assert len(cells) == len(asked) == 2 * 2 * strategies.nunique() - 2 * len(osdp.HYBRID)
    for cell in cells.itertuples():
        limits = np.array(limits_of_points, dtype=float)
        tried = points[
            (limits == cell.limit_gib) & (points["model_name"] == cell.model) & (strategies == cell.strategy).to_numpy()
        ]
        if cell.ended == "ok":
            assert cell.throughput == (tried["num_sequences_per_step"] / tried["step_seconds"]).max()
            assert cell.peak_gib <= cell.limit_gib
        else:
            assert np.isnan(cell.throughput)
            assert not (tried["status"] == "ok").any()


def test_what_the_search_finds_has_a_bar_of_its_own(points):
    tried = osdp.tried(points, "osdp_figure_5")
    asked = np.array(key_column(points, "strategy.choice", "simulated"))
    assert (tried["strategy"] == "osdp-search").tolist() == (asked == "search").tolist()
    assert set(tried.loc[tried["strategy"] == "osdp-search", "split"].dropna()), "its plans say how they are cut"
    cells = osdp.cells(points, "osdp_figure_5").set_index(["model", "limit_gib", "strategy"])["throughput"].sort_index()
    for model, limit in {key[:2] for key in cells.index}:
        ours, of_search = cells[model, limit, "osdp"], cells[model, limit, "osdp-search"]
        assert np.isnan(ours) == np.isnan(of_search)
        assert np.isnan(ours) or ours >= (1.0 - osdp.EQUAL) * of_search
    rows = osdp.figure_5(points).rows
    beside = rows[rows["over"] == "zero3"].set_index(["strategy", "statistic"])["paper"]
    assert beside["osdp", "max"] == beside["osdp-search", "max"]
    assert "osdp-search" not in osdp._baselines("others", tried)


def test_hybrids_have_a_table(points):
    comparison = osdp.hybrids_on_8_gpus(points)
    cells = osdp.cells(points, "osdp_figure_5").set_index(["model", "limit_gib", "strategy"])
    (row,) = comparison.rows[comparison.rows["limit"] == "16 GiB"].to_dict("records")
    wide = cells["throughput"].loc["mingpt-ws-2x6144", 16.0]
    batch = cells.loc[("mingpt-ws-2x6144", 16.0, "3d"), "batch"]
    assert row["model"] == "W&S 2\N{MULTIPLICATION SIGN}6144"
    assert row["DeepSpeed 3D"] == f"{wide['3d']:.2f} ({batch:g})"
    assert row["over 3D"] == wide["3d+osdp"] / wide["3d"]
    assert row["over the best other"] == wide["3d+osdp"] / wide[["zero3", "osdp", "megatron"]].max()
    assert set(comparison.rows) & {"GPipe", "OSDP-base", "OSDP's own search"} == set()


def test_out_of_memory_and_not_applicable_are_told_apart(points):
    ended = osdp.cells(points, "osdp_figure_5").set_index(["model", "limit_gib", "strategy"])["ended"]
    for strategy in ("osdp", "osdp-base", "zero3", "ddp"):
        assert ended["mingpt-nd-48x1536", 2, strategy] == "OOM", strategy
    assert ended["mingpt-nd-48x1536", 16, "osdp"] == "ok"
    for limit in (2, 16):
        assert ended["mingpt-ws-2x6144", limit, "gpipe"] == "N/A", "2 layers in 8 stages"


def test_every_point_asked_for_is_among_the_results(points):
    counts = points.groupby(["model_name", "strategy_name"]).size().unstack()
    assert (counts.nunique() == 1).all(), "as many of every model"


def test_bars_are_the_cells_and_what_failed_says_so(small_version, points):
    cells = osdp.cells(points, "osdp_figure_5")
    drawn = figure_5.draw(small_version("osdp/figure_5", SMALLER), points)
    heights = artists(drawn, "throughput")
    failed = artists(drawn, "failed")
    for cell in cells.itertuples():
        name = f"{cell.model}/{cell.limit_gib:g}/{cell.strategy}"
        if cell.ended == "ok":
            assert heights[name].get_height() == cell.throughput
        else:
            assert failed[name].get_text() == cell.ended
    assert len(heights) + len(failed) == len(cells)


def test_figure_8_is_osdp_with_and_without_slices(small_version, points):
    drawn = figure_8.draw(small_version("osdp/figure_5", SMALLER), points)
    names = {**artists(drawn, "throughput"), **artists(drawn, "failed")}
    assert {name.rsplit("/", 1)[1] for name in names} == {"osdp", "osdp-base"}


def test_a_mode_that_joins_is_drawn_and_compared(points):
    """Nothing lists the strategies: what is now FSDP's here is Megatron-LM's, 3D's and a nameless mode's there."""
    points = points[~points["strategy_name"].isin(["megatron", *osdp.HYBRID])]
    for joined in ("megatron", "3d", "3d+osdp", "somebody-elses"):
        more = pd.concat([points, points[points["strategy_name"] == "zero3"].assign(strategy_name=joined)])
        cells = osdp.cells(more, "osdp_figure_5")
        drawn = {"f": panels(cells, "")}
        assert f"mingpt-nd-48x1536/16/{joined}" in artists(drawn, "throughput")
        assert f"mingpt-nd-48x1536/2/{joined}" in artists(drawn, "failed")
        absent = [text for text in osdp.endings_in_words(cells) if text.startswith("Not simulated")]
        assert all(osdp.NAMES.get(joined, joined) not in text for text in absent)
    hybrid = pd.concat(
        [points] + [points[points["strategy_name"] == "zero3"].assign(strategy_name=name) for name in ("3d", "3d+osdp")]
    )
    rows = osdp.figure_5(hybrid).rows.set_index(["strategy", "over", "statistic"])
    assert rows.loc[("3d+osdp", "3d", "max"), "simulated"] == 1.0
    assert rows.loc[("3d+osdp", "others", "max"), "pairs"] > 0
    assert (
        osdp.figure_5(points).rows.set_index(["strategy", "over", "statistic"]).loc[("3d+osdp", "3d", "max"), "pairs"]
        == 0
    )


def test_hybrids_stand_beside_the_others_in_their_cell(points):
    cells = osdp.cells(points, "osdp_figure_5").set_index(["model", "limit_gib", "strategy"])["throughput"].sort_index()
    wide = cells["mingpt-ws-2x6144", 16.0]
    assert wide["3d+osdp"] >= wide["3d"] > 0.0, "the same degrees with the states of 3d are among its plans"
    assert wide["megatron"] > 0.0
    rows = osdp.figure_5(points).rows.set_index(["strategy", "over", "statistic"])
    assert rows.loc[("3d+osdp", "3d", "max"), "pairs"] > 0


def test_split_operators_are_those_of_the_plan_that_ran(points):
    cells = osdp.cells(points, "osdp_figure_5")
    ran = cells[cells["ended"] == "ok"]
    assert (ran.loc[ran["strategy"] == "osdp", "split"].between(0.0, 1.0)).all()
    assert (ran.loc[ran["strategy"] == "osdp-base", "split"] == 0.0).all()
    assert ran.loc[~ran["strategy"].str.startswith("osdp"), "split"].isna().all()


def made_up(throughputs):
    """(model, limit, strategy) -> cells."""
    return pd.DataFrame(
        [
            (model, osdp.FAMILIES[model[:2]], limit, strategy, "ok" if value else "OOM", value or np.nan)
            for (model, limit, strategy), value in throughputs.items()
        ],
        columns=[*osdp.CELL, "strategy", "ended", "throughput"],
    )


def test_statistics_are_over_cells_where_both_ran():
    cells = made_up(
        {
            ("nd-a", 8, "osdp"): 3.0,
            ("nd-a", 8, "zero3"): 2.0,
            ("nd-a", 8, "ddp"): 1.0,
            ("nd-a", 16, "osdp"): 5.0,
            ("nd-a", 16, "zero3"): 4.0,
            ("nd-a", 16, "ddp"): None,
            ("ws-a", 8, "osdp"): 9.0,
            ("ws-a", 8, "zero3"): None,
            ("ws-a", 8, "ddp"): None,
        }
    )
    rows = osdp.beside_printed(published("osdp", "figure_5"), cells)
    ours = rows.set_index(["family", "over", "statistic"])[["simulated", "pairs"]].apply(tuple, axis=1).to_dict()
    assert ours["N&D", "zero3", "max"] == (1.5, 2)
    assert ours["N&D", "zero3", "mean"] == (1.375, 2)
    assert ours["N&D", "pure", "max"] == (3.0, 3)
    assert ours["W&S", "pure", "max"][1] == 0
    assert np.isnan(ours["W&S", "pure", "max"][0])
    assert osdp.endings_in_words(cells)[:2] == [
        "First, or within 0.1 % of it, in the 3 cells of 3 where anything runs: OSDP 3.",
        "OOM: PyTorch DDP 2, FSDP 1 cells.",
    ]
    equal = pd.concat([cells, cells[cells["strategy"] == "osdp"].assign(strategy="osdp-base")])
    assert osdp.endings_in_words(equal)[0].endswith("runs: OSDP 3, OSDP-base 3.")


def test_figure_7_is_time_and_memory_by_slices(small_version):
    results = small_version("osdp/figure_7_simulated")
    points = by_point(results)
    rows = osdp.of_figure_7(points)
    assert len(rows) == 20
    whole = rows[rows["slices"] == 0]
    assert (whole["saved"] == 0.0).all()
    assert (rows.loc[rows["slices"] > 0, "saved"] > 0.0).all()
    drawn = figure_7.draw(results, points)
    for column in figure_7.VALUES:
        bars = artists(drawn, column)
        assert {name: bar.get_height() for name, bar in bars.items()} == {
            f"{row.hidden}/{row.slices}": getattr(row, column) for row in rows.itertuples()
        }
    assert osdp.figure_7(points).rows.loc[0, "simulated"] == rows["saved"].max()


def test_an_equal_batch_is_the_one_at_which_fsdp_is_fastest():
    rows = pd.concat(
        [
            made_up({("nd-a", 8, "osdp"): osdp_is, ("nd-a", 8, "zero3"): zero3_is, ("nd-a", 16, "osdp"): 7.0}).assign(
                batch=batch
            )
            for batch, osdp_is, zero3_is in ((8, 3.0, 1.0), (16, 5.0, 4.0), (24, 9.0, 2.0))
        ]
    )
    there = osdp.at_equal_batch(rows).set_index("strategy")
    assert there["batch"].tolist() == [16, 16]
    assert there.loc["osdp", "throughput"] == 5.0
    assert there.loc["zero3", "throughput"] == 4.0


def test_equal_batches_are_drawn_and_compared_with_fsdp(small_version):
    few = "train.global_batch > 24 || model.name == 'mingpt-ws-2x6144'"
    fewer = (SMALLER[0], SMALLER[1], ("train.global_batch > 96 && model.name != 'mingpt-ws-2x6144'", few))
    points = by_point(results := small_version("osdp/figure_5_equal_batch", fewer))
    drawn = artists(figure_5_equal_batch.draw(results, points), "throughput")
    names = ("zero3", "osdp", *osdp.VARIANTS)
    assert set(drawn) == {f"mingpt-nd-48x1536/16/{name}" for name in names}
    comparison = osdp.figure_5_equal_batch(points)
    rows = osdp.at_equal_batch(osdp.tried(points, "osdp_figure_5_equal_batch")).set_index("strategy")
    ratios = rows.loc[list(names[1:]), "throughput"] / rows.loc["zero3", "throughput"]
    assert (ratios >= 1.0).all()
    assert comparison.rows.query("family == 'N&D'")["simulated"].tolist() == pytest.approx(np.repeat(ratios, 2))
    of_each = ", ".join(f"{osdp.NAMES[name]} {ratio:.2f}" for name, ratio in ratios.items())
    assert comparison.statements == [
        f"mingpt-nd-48x1536, 16 GiB, {rows.loc['osdp', 'batch']:g} sequences a step: {of_each}."
    ]


@pytest.mark.parametrize(("figure", "module"), [("5", figure_5_one_sample), ("9", figure_9_one_sample)])
def test_one_sample_a_gpu_is_drawn_and_compared_with_fsdp(small_version, figure, module):
    results = small_version(f"osdp/figure_{figure}_one_sample", SMALLER[:2])
    points = by_point(results)
    assert set(points["num_sequences_per_step"]) <= {0, 8}
    assert "mingpt-nd-48x1536/16/osdp" in artists(module.draw(results, points), "throughput")
    comparison = getattr(osdp, f"figure_{figure}_one_sample")(points)
    assert set(comparison.rows["over"]) == {"zero3"}
    assert len(comparison.rows) == 2
    assert any(text.startswith("N&D: OSDP over FSDP mean ") for text in comparison.statements)


def test_figure_9_compares_with_and_without_checkpointing(small_version):
    small = ((MODELS, '  "mingpt-nd-48x1536",\n'), SMALLER[1])
    with_checkpointing = small_version("osdp/figure_9", small)
    without = small_version("osdp/figure_5", SMALLER)
    both = pd.concat([by_point(with_checkpointing), by_point(without)], ignore_index=True)
    comparison = osdp.figure_9(both)
    assert any("FSDP with checkpointing over without" in text for text in comparison.statements)
    assert set(artists(figure_9.draw(with_checkpointing, both), "throughput")) == {
        "mingpt-nd-48x1536/16/zero3",
        "mingpt-nd-48x1536/16/osdp",
        "mingpt-nd-48x1536/16/osdp-search",
    }
    assert "Figure 9, throughput with checkpointing" in short_table(with_checkpointing)


def test_speedups_over_fsdp_are_judged_at_equal_batch(monkeypatch):
    """With what the best batches and the variants have beside it."""

    def rows(**throughputs):
        names = {name.replace("_", "-"): value for name, value in throughputs.items()}
        return made_up({("nd-a", 8, name): value for name, value in names.items()})

    best = rows(osdp=4.0, osdp_search=3.0, zero3=2.0)
    monkeypatch.setattr(osdp, "_of_figures", lambda *_: [best])
    monkeypatch.setattr(osdp, "of_equal_batch", lambda *_: rows(osdp=2.2, osdp_search=1.8, osdp_sdp=2.6, zero3=2.0))
    (claim,) = (claim for claim in osdp.CLAIMS if claim.what == "figure_5")

    class NoSweeps:
        def points(self, *_):
            return None

    ours = claim.ours(NoSweeps()).set_index(["family", "over", "statistic"])
    assert ours.loc[("N&D", "zero3", "max"), "ratio"] == pytest.approx(1.1)
    assert ours.loc[("N&D", "zero3", "max"), "also"] == (
        "OSDP's own search: 0.90. OSDP with SDP: 1.30. Each at its best batch: 2.00. OSDP's own search: 1.50."
    )
    assert ours.loc[("N&D", "pure", "max"), "ratio"] == 2.0
    assert len(ours) == len(published("osdp", "figure_5"))


def test_the_authors_script_and_profile(small_version):
    """The bandwidth of the cluster is that which the profile's replicated layers imply; the others are predicted."""
    points = by_point(small_version("osdp/authors_profile"))
    assert len(points) == 32
    comparison = osdp.authors_profile(points)
    assert comparison.rows["role"].tolist() == ["fitted", "predicted", "predicted", "predicted"]
    printed = published("osdp", "authors_profile").query("hold == 'DP' and sequences == 0")
    median = osdp.implied_bandwidth(printed).median()
    cluster = tomllib.loads((ROOT / "experiments/clusters/titan-pcie.toml").read_text(encoding="utf-8"))
    assert cluster["intra_node"]["effective_bandwidth_bytes_per_second"] == pytest.approx(median, rel=0.01)
    smaller = (("vocabulary = 10", "layers = 2\nvocabulary = 10"), ("memory_gib = 8", "memory_gib = 1"))
    script = osdp.authors_script(by_point(small_version("osdp/authors_script", smaller)))
    assert script.rows["simulated"].notna().all()
    assert script.statements[0].startswith("Over FSDP: theirs 1.22; ")
