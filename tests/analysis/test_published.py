"""What papers print: the reader of it, and AMSP's figures drawn from small versions of its experiments."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import artists
from matplotlib import pyplot
from strata_analysis import figures
from strata_analysis.derive import by_point
from strata_analysis.figures import draw_all
from strata_analysis.figures.amsp import (
    figure_2,
    figure_3,
    figure_11,
    figure_12,
    figure_13,
    figure_16,
    figure_17,
    figure_18,
    table_5,
)
from strata_analysis.published import (
    FOLDER,
    PublishedError,
    amsp,
    beside,
    errors_in_words,
    markdown,
    mean_absolute_error,
    published,
    same_ranking,
)
from strata_analysis.series import keys_of
from strata_analysis.table import short_table

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


# ------------------------------------------------------------------------------------------------------ the reader


def write(folder, text):
    (folder / "paper.toml").write_text(text, encoding="utf-8")
    return folder


def test_lists_give_rows_and_the_rest_holds_for_all(tmp_path):
    write(
        tmp_path,
        '[[t]]\nwhere = "sec. 1"\nranks = 8\nmfu = [0.5, 0.25]\n[[t]]\nwhere = "sec. 2"\nranks = 16\nmfu = 0.1',
    )
    rows = published("paper", "t", tmp_path)
    assert rows.to_dict("list") == {
        "where": ["sec. 1", "sec. 1", "sec. 2"],
        "ranks": [8, 8, 16],
        "mfu": [0.5, 0.25, 0.1],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[t]]\nwhere = "a"\nx = [1, 2]\ny = [1]', "lists of different lengths"),
        ("[[t]]\nx = 1", "without `where`"),
        ('[[u]]\nwhere = "a"', "no t; there are u"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, text, message):
    with pytest.raises(PublishedError, match=re.escape(message)):
        published("paper", "t", write(tmp_path, text))


def test_beside_joins_by_key_and_says_the_error():
    printed = pd.DataFrame({"model": ["a", "b", "c"], "mfu": [0.5, 0.4, 0.1]})
    ours = pd.DataFrame({"model": ["b", "a"], "mfu": [0.5, 0.25]})
    rows = beside(printed, ours, ["model"], "mfu")
    np.testing.assert_allclose(rows["error"][:2], [-0.5, 0.25])
    assert np.isnan(rows["simulated"][2])
    assert mean_absolute_error(rows) == pytest.approx(0.375)
    assert errors_in_words(rows) == "absolute error: mean 38 %, median 38 %"
    assert markdown(rows).splitlines()[2:] == [
        "| a | 0.50 | 0.25 | -50 % |",
        "| b | 0.40 | 0.50 | +25 % |",
        "| c | 0.10 | - | - |",
    ]
    with pytest.raises(PublishedError, match="several simulated points"):
        beside(printed, pd.concat([ours, ours]), ["model"], "mfu")


@pytest.mark.parametrize(
    ("paper", "simulated", "same"),
    [
        ([3, 2, 1], [0.3, 0.2, 0.1], True),
        ([3, 2, 1], [0.3, 0.1, 0.2], False),
        ([2, 2, 1], [0.2, 0.3, 0.1], True),
        ([2, 1], [1, 1], False),
    ],
)
def test_ranking(paper, simulated, same):
    assert same_ranking(pd.DataFrame({"paper": paper, "simulated": simulated})) is same


def test_everything_that_ships_reads():
    for file in FOLDER.glob("*.toml"):
        for name in re.findall(r"^\[\[(\w+)\]\]", file.read_text(encoding="utf-8"), re.MULTILINE):
            assert not published(file.stem, name).empty


def test_tgs_and_mfu_of_table_5_agree():
    """Both are printed: a slip in either would show. The paper's MFU of 7B with one micro-batch is 9 to 10 % above."""
    rows = published("amsp", "table_5")
    flops = rows["model"].map({"llama-7b": 45.9e9, "llama-13b": 86.5e9, "llama-30b": 182.4e9})
    above = rows["mfu"] / (rows["tgs"] * flops / 312e12) - 1.0
    off = (rows["model"] == "llama-7b") & (rows["micro_batches"] == 1)
    assert above[~off].abs().max() < 0.035
    assert above[off].between(0.085, 0.105).all()


# ------------------------------------------------------------------------------------------------------ the figures


@pytest.fixture
def simulated(small_version):
    """Name of a file of experiments/amsp/ -> its results with one layer and the given texts replaced."""

    def run(name, *replacements, layers=True):
        return small_version(f"amsp/{name}", replacements, ("--set", "model.layers=1") if layers else ())

    return run


ENDS = (
    ("global_batch_tokens = 4_194_304", ""),
    ("[1, 2, 4, 8, 16, 32, 64, 128]", "[1, 128]"),
    ("[128, 64, 32, 16, 8, 4, 2, 1]", '[4, 1]\n"train.global_batch" = [32, 1024]'),
)


def test_figures_11_to_13_hold_the_points_and_the_printed_numbers(simulated):
    results = simulated("figure_11", *ENDS)
    points = by_point(results)
    for module, column, scale in (
        (figure_11, points["mfu"], 100.0),
        (figure_12, points["samples_per_second"] / points["num_ranks"], 1.0),
        (figure_13, points[["arena_peak_bytes", "outside_arena_peak_bytes"]].sum(axis=1) / 2**30, 1.0),
    ):
        lines = artists(module.draw(results, points), "simulated")
        assert len(lines) == 13
        for name, line in lines.items():
            model, strategy = name.split("/")
            chosen = points[(points["model_name"] == model) & (points["strategy_name"] == strategy)]
            chosen = chosen.sort_values("num_ranks")
            assert list(line.get_xdata()) == list(chosen["num_ranks"])
            np.testing.assert_allclose(line.get_ydata(), scale * column[chosen.index], rtol=1e-12)
    marks = artists(figure_11.draw(results, points), "paper")
    np.testing.assert_allclose(marks["llama-7b/amsp"].get_xydata(), [[8, 64], [1024, 51]])
    np.testing.assert_allclose(
        artists(figure_13.draw(results, points), "paper")["llama-30b/zero3"].get_ydata(), [16, 15]
    )


def test_printed_tgs_of_figure_12_follows_from_the_mfu(simulated):
    results = simulated("figure_11", *ENDS)
    points = by_point(results)
    flops = points[points["model_name"] == "llama-13b"].iloc[0]["flops_per_sample"]
    mark = artists(figure_12.draw(results, points), "paper")["llama-13b/mics"]
    assert mark.get_ydata()[0] == pytest.approx(0.33 * 312e12 / flops)


def test_what_the_clusters_runtime_keeps_is_beside_the_arena_and_fitted_to_one_row(simulated):
    points = by_point(simulated("figure_11", *ENDS))
    assert (points["outside_arena_peak_bytes"] == 10_067_000_000).all()
    ours = amsp.of_experiment(points, "amsp_figure_11").set_index("point")["memory_gib"]
    arena = points.set_index("point")["arena_peak_bytes"] / 2**30
    np.testing.assert_allclose(ours - arena[ours.index], 10_067_000_000 / 2**30)
    rows = amsp.figure_13(points).rows
    assert dict(zip(rows["ranks"], rows["role"], strict=True)) == {512: "fitted", 1024: "predicted"}


def test_figures_16_and_17_tell_the_two_plans_apart(simulated):
    results = simulated("figure_16", *ENDS)
    points = by_point(results)
    for module in (figure_16, figure_17):
        assert set(artists(module.draw(results, points), "simulated")) == {
            f"{model}/{strategy}" for model in amsp.MODELS for strategy in ("amsp", "mics")
        }
    rows = amsp.figure_16(points).rows.set_index("model")
    assert rows.loc["llama-7b", "paper"] == 1.3
    by_factors = {
        keys["strategy.p"]: point["mfu"]
        for keys, point in ((keys_of(point), point) for _, point in points.iterrows())
        if point["model_name"] == "llama-13b" and point["num_ranks"] == 1024
    }
    assert rows.loc["llama-13b", "simulated"] == pytest.approx(by_factors['"4x1"'] / by_factors['"8x1"'])


def test_table_5_pairs_the_levels(simulated):
    results = simulated("table_5")
    points = by_point(results)
    rows = amsp.table_5(points).rows
    assert len(rows) == 48
    assert rows["simulated"].notna().all()
    bars = artists(table_5.draw(results, points), "paper")
    assert bars["llama-13b/AG/RS + AR/4"].get_height() == 2160
    ours = artists(table_5.draw(results, points), "simulated")
    row = rows[(rows["model"] == "llama-30b") & (rows["overlap"] == "none") & (rows["micro_batches"] == 2)].iloc[0]
    assert ours["llama-30b/none/2"].get_height() == row["simulated"]
    # Every level hides more than the one below it, and what is nothing to hide costs nothing.
    levels = rows.pivot(index=["model", "micro_batches"], columns="overlap", values="simulated")
    assert (levels["AG/RS + AR + BC"] >= levels["AG/RS + AR"]).all()
    assert (levels["AG/RS + AR"] > levels["AG/RS"]).all()
    assert levels.loc["llama-7b", "AG/RS"].tolist() == pytest.approx(levels.loc["llama-7b", "none"].tolist())


def test_figure_2_shows_states_and_compute(simulated):
    results = simulated(
        "figure_2",
        ("global_batch_tokens = 4_194_304", ""),
        ("[1, 2, 4, 8, 16, 32, 64]", "[1, 64]"),
        ("[128, 64, 32, 16, 8, 4, 2]", '[8, 2]\n"train.global_batch" = [64, 1024]'),
    )
    points = by_point(results)
    drawn = figure_2.draw(results, points)
    states = {name: line.get_ydata() for name, line in artists(drawn, "states").items()}
    assert states["zero3"][1] < states["zero2"][1] < states["zero1"][1] < states["zero1"][0]
    for line in artists(drawn, "compute").values():
        assert line.get_ydata()[0] / line.get_ydata()[1] == pytest.approx(4, rel=0.2)


def test_figure_3_is_the_bandwidth_of_the_cluster_file(simulated):
    results = simulated(
        "figure_3",
        (
            "[[512, 1024], [1024, 2048], [2048, 4096], [4096, 8192], [8192, 16384], [16384, 32768]]",
            "[[512, 1024], [8192, 16384]]",
        ),
        ("[1, 2, 4, 8, 16, 32, 64]", "[1, 64]"),
        ("[8, 16, 32, 64, 128, 256, 512]", "[8, 512]"),
        layers=False,
    )
    drawn = figure_3.draw(results, by_point(results))
    lines = {name: line.get_xydata() for name, line in artists(drawn, "bandwidth").items()}
    assert set(lines) == {f"{collective}/{ranks}" for collective in figure_3.COLLECTIVES for ranks in (8, 512)}
    # A ring inside a node at 160 GB/s moves 7/8 of the message, an all-reduce twice that.
    assert 0.95 < lines["all_gather/8"][1][1] / (160 * 8 / 7) < 1.0
    assert 0.95 < lines["all_reduce/8"][1][1] / (160 * 4 / 7) < 1.0
    for name, line in lines.items():
        assert list(line[:, 0]) == [1, 256], name
        assert line[0][1] < line[1][1], name
    times = artists(drawn, "time")["all_gather"].get_xydata()
    assert list(times[:, 0]) == [8, 512]
    assert times[0][1] == pytest.approx(2**28 / lines["all_gather/8"][1][1] / 1e6)


def test_figure_18_draws_the_streams_of_every_trace(simulated):
    results = simulated("figure_18")
    drawn = figure_18.draw(results, by_point(results))
    assert set(drawn) == {"18-llama-7b", "19-llama-13b", "20-llama-30b", "14-llama-7b", "15-amsp"}
    assert set(artists({"f": drawn["20-llama-30b"]}, "broadcast")) == {"llama-30b/amsp"}
    # What is sharded over all ranks is scattered and gathered alone.
    assert set(artists({"f": drawn["18-llama-7b"]}, "all_reduce")) == {
        f"llama-7b/{name}" for name in figure_18.STRATEGIES if name not in ("zero3", "zeropp")
    }
    detail = artists({"f": drawn["14-llama-7b"]}, "backward")
    whole = artists({"f": drawn["18-llama-7b"]}, "backward")
    assert 0 < len(detail["llama-7b/mics"].get_paths()) < len(whole["llama-7b/mics"].get_paths())
    assert "forward/llama-7b/zero3" not in artists({"f": drawn["14-llama-7b"]}, "forward")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("all_gather block[0].attn.qkv.weight", "all_gather"),
        ("linear_backward_weight head", "backward"),
        ("linear_forward head", "forward"),
        ("adam head.weight", "optimizer"),
    ],
)
def test_kinds_of_instructions(name, kind):
    assert figure_18.kind_of(name) == kind


def test_figures_and_table_of_results_say_what_the_paper_prints(simulated, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "MODULES", ())
    results = simulated("table_5")
    drawn = draw_all(results, tmp_path)
    assert "amsp-table_5-tgs.png" in {file.name for file in drawn.files}
    assert not any(file.name.startswith("amsp-figure") for file in drawn.files)
    text = short_table(results)
    assert "Table V, TGS on 64 GPUs:" in text
    assert "| llama-7b | 1 | 3525 | " in text
