"""AutoDDL's figures and printed savings, from small versions of its experiments and from cells made by hand."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import artists
from matplotlib import pyplot
from strata_analysis import layout_searches
from strata_analysis.derive import by_point, key_column
from strata_analysis.figures import autoddl as figures
from strata_analysis.figures.autoddl import (
    figure_3,
    figure_4_daint,
    figure_8,
    figure_9_vgg13,
    figure_10_transformer,
    table_3,
)
from strata_analysis.fit_autoddl_link import with_link
from strata_analysis.published import autoddl, published
from strata_analysis.table import short_table

ROOT = Path(__file__).parents[2]
FEWER_MICRO_BATCHES = (("[2, 4, 8, 16, 32, 64, 128, 256, 512]", "[2, 64, 128]"),)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def transformers(small_version):
    return small_version("autoddl/figure_10_transformer", FEWER_MICRO_BATCHES)


@pytest.fixture(scope="module")
def vgg13(small_version):
    return small_version("autoddl/figure_9_vgg13")


# Table 3 on eight nodes: the stages, strategies and keys are the experiment's.
SMALL_PIPELINES = (
    ('["autoddl-16.5b", "autoddl-deep"]', '["gpt-micro"]'),
    ("[64, 64, 64, 128, 128, 128]", "[8]"),
    ("[512, 512, 512, 1024, 1024, 1024]", "[16]"),
    ("[32, 64, 128, 64, 128, 256]", "[4]"),
)


@pytest.fixture(scope="module")
def pipelines(small_version):
    return small_version("autoddl/table_3", SMALL_PIPELINES)


def staged(*rows):
    """(model, nodes, strategy, stages, step_seconds), NaN: out of memory."""
    columns = ["model", "nodes", "strategy", "stages", "step_seconds"]
    cells = pd.DataFrame(rows, columns=columns)
    ended = np.where(cells["step_seconds"].isna(), "OOM", "ok")
    return cells.assign(devices=1, optimizer="sgd", micro_batches=8, ended=ended)


def by_hand(*rows):
    columns = ["strategy", "step_seconds", "communication_seconds"]
    cells = pd.DataFrame(rows, columns=columns)
    same = {"model": "vgg13", "nodes": 16, "devices": 1, "optimizer": "adamw", "micro_batches": 1}
    return cells.assign(**same, ended=np.where(cells["step_seconds"].isna(), "OOM", "ok"))


def test_a_cell_is_the_fastest_point_that_fits(transformers):
    points = by_point(transformers)
    cells = autoddl.cells(points, "autoddl_figure_10_transformer")
    assert len(cells) == 2 * 5
    counts = np.array(key_column(points, "train.micro_batches", ""), dtype=int)
    for cell in cells.itertuples():
        is_blocking = np.array(key_column(points, "strategy.panels", "ahead")) == "blocking"
        here = (points["model_name"] == cell.model) & (is_blocking == (cell.strategy == autoddl.BLOCKING))
        tried = points[here & (points["strategy_name"] == cell.strategy.split(",")[0])]
        if cell.ended == "ok":
            best = tried["step_seconds"].idxmin()
            assert cell.step_seconds == tried.loc[best, "step_seconds"]
            assert cell.micro_batches == counts[best]
            assert 0 < cell.exposed_seconds <= cell.communication_seconds < cell.step_seconds
        else:
            assert not (tried["status"] == "ok").any()
            assert np.isnan(cell.step_seconds)
    ended = cells.set_index(["model", "strategy"])["ended"]
    assert ended["autoddl-5.8b", "ddp"] == "OOM", "as the paper says"
    assert ended["autoddl-5.8b", "autoddl"] == "ok"


def test_the_small_transformer_is_data_parallel_under_autoddl_too(transformers):
    cells = autoddl.cells(by_point(transformers), "autoddl_figure_10_transformer").set_index(["model", "strategy"])
    ours, ddp = (cells.loc[("autoddl-0.35b", name)] for name in ("autoddl", "ddp"))
    assert ours["step_seconds"] == pytest.approx(ddp["step_seconds"], rel=1e-3)


def test_savings_are_over_the_fastest_of_the_others_or_over_one():
    rows = by_hand(("ddp", 8.0, 7.0), ("megatron", 4.0, 2.0), ("summa", np.nan, np.nan), ("autoddl", 3.0, 0.5))
    second = autoddl.savings(rows, autoddl.SECOND_BEST).set_index("quantity")
    assert set(second["it"]) == {"megatron"}
    assert second.loc["step", "saved"] == 0.25
    assert second.loc["communication", "saved"] == 0.75
    assert autoddl.savings(rows, "ddp").set_index("quantity").loc["step", "saved"] == 0.625
    assert autoddl.savings(rows, "summa").empty, "it did not run"


def test_printed_savings_stand_beside_ours_and_what_is_not_simulated_is_left_out():
    printed = published("autoddl", "figure_9")
    rows = autoddl.beside_printed(printed, by_hand(("megatron", 4.0, 2.0), ("autoddl", 3.0, 0.5)))
    assert set(rows["model"]) == {"vgg13"}
    first = rows[(rows["nodes"] == 16) & (rows["quantity"] == "communication")].iloc[0]
    assert (first["paper"], first["simulated"]) == (0.10, 0.75)
    assert rows.loc[rows["nodes"] == 64, "simulated"].isna().all()


def test_what_failed_is_said_with_its_reason():
    (words,) = autoddl.order_in_words(by_hand(("megatron", np.nan, np.nan), ("autoddl", 3.0, 0.5)))
    assert words.endswith("AutoDDL 3 s (0.5 s, 1 micro-batches), Megatron OOM.")


def test_bars_are_the_cells_and_what_failed_says_so(transformers):
    points = by_point(transformers)
    drawn = figure_10_transformer.draw(transformers, points)
    steps, exposed, failed = (artists(drawn, name) for name in ("step", "exposed", "failed"))
    cells = autoddl.cells(points, "autoddl_figure_10_transformer")
    for cell in cells.itertuples():
        name = f"adamw/{cell.model}/2x16/{cell.strategy}"
        if cell.ended == "ok":
            assert steps[name].get_height() == cell.step_seconds
            assert exposed[name].get_height() == cell.exposed_seconds
        else:
            assert failed[name].get_text() == cell.ended
    assert len(steps) + len(failed) == len(cells)


def test_vgg13_is_fastest_under_autoddl_and_slowest_under_data_parallelism(vgg13):
    points = by_point(vgg13)
    cells = autoddl.cells(points, "autoddl_figure_9_vgg13")
    for _, members in cells.groupby("nodes"):
        ranking = members.sort_values("step_seconds")["strategy"]
        assert list(ranking) == ["autoddl", "megatron", "summa", autoddl.BLOCKING, "ddp"]
    assert len(artists(figure_9_vgg13.draw(vgg13, points), "step")) == 15


def test_table_3_has_the_fastest_number_of_stages_and_says_whether_it_is_the_papers():
    tried = staged(
        ("autoddl-deep", 64, "megatron", 1, 900.0),
        ("autoddl-deep", 64, "megatron", 2, 800.0),
        ("autoddl-deep", 64, "megatron", 4, np.nan),
        ("autoddl-deep", 64, "autoddl", 1, 600.0),
        ("autoddl-deep", 64, "autoddl", 2, 500.0),
        ("autoddl-deep", 64, "autoddl", 4, 400.0),
        ("autoddl-deep", 128, "megatron", 2, np.nan),
    )
    best = autoddl.fastest(tried, [*autoddl.CELL, "strategy"])
    rows = autoddl.seconds_and_stages(published("autoddl", "table_3"), best)
    assert set(rows["optimizer"]) == {"sgd"}
    rows = rows.set_index(["model", "nodes", "strategy"])
    said = rows[["paper", "simulated", "paper_stages", "simulated_stages", "same_stages"]]
    assert tuple(said.loc["autoddl-deep", 64, "megatron"]) == (710, 800.0, 2, 2.0, "yes")
    assert tuple(said.loc["autoddl-deep", 64, "autoddl"]) == (443, 400.0, 2, 4.0, "no")
    absent = said.loc[[("autoddl-deep", 128, "megatron"), ("autoddl-16.5b", 64, "autoddl")]]
    assert absent[["simulated", "simulated_stages"]].isna().all(axis=None)
    assert list(absent["same_stages"]) == ["-", "-"]

    ratios = autoddl.over_megatron(rows.reset_index()).set_index(["model", "nodes"])
    assert ratios.loc[("autoddl-deep", 64), "paper"] == 443 / 710
    assert ratios.loc[("autoddl-deep", 64), "simulated"] == 0.5
    assert np.isnan(ratios.loc[("autoddl-deep", 128), "simulated"])

    (megatron, *_) = autoddl.stages_in_words(autoddl.fastest(tried, [*autoddl.CELL, "strategy", "stages"]))
    assert megatron.endswith("Megatron by stages: 1: 900 s (8 micro-batches), 2: 800 s (8 micro-batches), 4: OOM.")


def test_stages_are_those_of_the_points(pipelines):
    points = by_point(pipelines)
    tried = autoddl.tried(points, "autoddl_table_3")
    assert len(tried) == 2 * 3 * 2
    assert (tried.groupby("stages").size() == 4).all()
    stages = [1 if "\nstages = " not in text else int(text.split("count = ")[1][0]) for text in points["plan_text"]]
    assert list(tried["stages"]) == stages
    best = autoddl.cells(points, "autoddl_table_3")
    assert (best["ended"] == "ok").all()
    for cell in best.itertuples():
        others = tried[(tried["strategy"] == cell.strategy) & (tried["optimizer"] == cell.optimizer)]
        assert cell.step_seconds == others["step_seconds"].min()
    steps = artists(table_3.draw(pipelines, points), "step")
    assert {bar.get_height() for bar in steps.values()} == set(best["step_seconds"])
    assert len(steps) == 4


def test_elements_are_those_of_the_plans(small_version):
    smaller = (("hidden = 8192", "hidden = 1024"), ("nodes = 64", "nodes = 16"), ("heads = 64", "heads = 16"))
    results = small_version("autoddl/figure_3", (*smaller, ("layers = 8", "layers = 2")))
    points = by_point(results)
    rows = figure_3.elements(points).set_index("strategy")["elements_2e30"]
    assert 0 < rows["autoddl"] < rows["megatron"]
    heights = {name: bar.get_height() for name, bar in artists(figure_3.draw(results, points), "elements").items()}
    assert heights == rows.to_dict()


def test_what_a_search_has_found_never_gets_worse_and_is_never_below_the_optimum(small_version):
    results = small_version("autoddl/figure_8", (("[128, 4096]", "[16]"),))
    points = by_point(results)
    rows = layout_searches.traces(points)
    assert set(rows["search"]) == {"exhaustive", "random", "metropolis_hastings", "coordinate_descent"}
    num_seeds = rows.groupby("search")["seed"].nunique()
    assert num_seeds.pop("exhaustive") == 1
    assert (num_seeds == 10).all()
    assert (rows["over_optimum"] >= 1.0 - 1e-6).all()
    lines = artists(figure_8.draw(results, points), "search")
    assert set(lines) == {f"16/{search}" for search in figure_8.COLOURS}
    rates = layout_searches.rates()["strategies_per_second"]
    for search, rate in rates.items():
        line = lines[f"16/{search}"]
        assert (np.diff(line.get_ydata()) <= 1e-12).all()
        evaluations = layout_searches.over_seeds(rows[rows["search"] == search])["evaluations"]
        assert line.get_xdata() == pytest.approx(evaluations / rate)


def test_searches_of_figure_8_are_in_strategies_and_in_seconds(small_version):
    comparison = autoddl.figure_8(by_point(small_version("autoddl/figure_8", (("[128, 4096]", "[16]"),))))
    assert list(comparison.rows["strategies"]) == [100, 300, 1000, 10_000]
    assert comparison.rows["coordinate descent"].iloc[-1] == "1.00 [1.00, 1.00]"
    assert len(comparison.statements) == 3
    assert "16 nodes, coordinate descent: the median is within 1 % of the optimum after " in comparison.statements[-1]


def test_searches_without_an_exact_one_are_not_drawn(small_version):
    results = small_version("autoddl/figure_8", (("[128, 4096]", "[16]"),))
    points = by_point(results)
    searched = np.array(key_column(points, "strategy.search", "exact")) != "exact"
    assert isinstance(figure_8.draw(results, points[searched]), str)


def test_communication_is_drawn_as_predicted_and_as_simulated(small_version):
    results = small_version("autoddl/figure_4_daint")
    points = by_point(results)
    rows = autoddl.of_figure_4(points, "autoddl_figure_4_daint")
    assert len(rows) == 8
    assert rows["communication"].is_monotonic_decreasing
    drawn = figure_4_daint.draw(results, points)
    for name in ("predicted", "communication"):
        heights = {strategy: bar.get_height() for strategy, bar in artists(drawn, name).items()}
        assert heights == dict(zip(rows["strategy"], rows[name], strict=True))


def test_what_is_simulated_is_called_consistency_and_stands_beside_nothing_printed(small_version):
    points = by_point(small_version("autoddl/figure_4_daint"))
    rows = autoddl.of_figure_4(points, "autoddl_figure_4_daint")
    assert np.allclose(rows["predicted"], rows["communication"], rtol=0.02)
    said = autoddl.figure_4(points)
    assert said.title.startswith("Consistency")
    assert said.rows.empty
    measured = points.assign(simulated=False)
    assert autoddl.figure_4(measured).title.startswith("Figure 4")


def test_the_share_of_communication_is_the_second_bests(vgg13):
    cells = autoddl.cells(by_point(vgg13), "autoddl_figure_9_vgg13")
    shares = autoddl.shares(cells)
    for row in shares.itertuples():
        others = cells[(cells["nodes"] == row.nodes) & (cells["strategy"] != "autoddl")].set_index("strategy")
        assert row.it == others["step_seconds"].idxmin()
        assert row.share == others.loc[row.it, "exposed_seconds"] / others.loc[row.it, "step_seconds"]
    said = autoddl.figure_9_vgg13_shares(by_point(vgg13)).rows
    assert said["paper"].tolist() == [0.30, 0.49, 0.61]
    assert said["simulated"].tolist() == shares["share"].tolist()


def test_a_fitted_link_replaces_its_numbers_alone():
    text = (ROOT / "experiments" / "clusters" / "daint-p100.toml").read_text()
    fitted = with_link(text, {"latency_seconds": 3e-5, "effective_bandwidth_bytes_per_second": 2e9})
    before, after = tomllib.loads(text), tomllib.loads(fitted)
    assert after["inter_node"] == before["inter_node"] | {
        "latency_seconds": 3e-5,
        "effective_bandwidth_bytes_per_second": 2e9,
    }
    del before["inter_node"], after["inter_node"]
    assert after == before
    with pytest.raises(SystemExit, match=r"inter_node\.latency: 0 lines"):
        with_link(text, {"latency": 1.0})


def test_rank_correlation_knows_order_alone():
    rows = pd.DataFrame({"predicted": [4.0, 3.0, 1.0], "communication": [100.0, 2.0, 1.0]})
    assert autoddl.rank_correlation(rows) == pytest.approx(1.0)
    assert autoddl.rank_correlation(rows.assign(predicted=[1.0, 3.0, 4.0])) == pytest.approx(-1.0)


def test_the_short_table_puts_the_paper_beside_them(vgg13):
    text = short_table(vgg13)
    assert "what AutoDDL saves: VGG-13 on Piz Daint" in text
    assert "data parallelism's step over AutoDDL's" in text


def test_every_figure_names_an_experiment():
    names = [module.EXPERIMENT for module in figures.MODULES]
    assert len(names) == len(set(names))
    assert set(autoddl.COMPARISONS) <= set(names)
