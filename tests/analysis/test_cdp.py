"""CDP's figures and table 1 from its experiments, and the metrics of memory over time from curves made by hand."""

import numpy as np
import pytest
from drawn import artists
from matplotlib import pyplot
from strata_analysis.derive import by_point
from strata_analysis.figures.cdp import figure_1, figure_2, figure_4
from strata_analysis.memory_over_time import (
    Curve,
    curves_of,
    live_stage_activations,
    mean_of_workers,
    sum_of_ranks,
)
from strata_analysis.published import cdp
from strata_analysis.table import short_table

# Of a batch of 32 the curve is that of a batch of 4, higher.
SMALLER_FIGURE_4 = (
    ("global_batch = 32", "global_batch = 4"),
    ('"resnet50", "vit-b16", "vgg13", "gpt2-small"', '"vgg13-cifar", "gpt-mini"'),
)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def table_1(small_version):
    return small_version("cdp/table_1")


# ----------------------------------------------------------------------------------------------------- made by hand


def triangle(num_stages):
    """Stages that take a time step each, forward and backward, and a byte each until their backward is over."""
    steps = np.arange(2 * num_stages, dtype=float)
    return Curve(steps, np.minimum(steps + 1, 2 * num_stages - steps), 2.0 * num_stages)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8, 32])
def test_copies_of_even_stages_are_flat_at_half_of_the_peak_and_half_a_stage(workers):
    mean = mean_of_workers(triangle(workers), workers)
    assert mean.values == pytest.approx(np.full(len(mean.values), (workers + 1) / 2), abs=1e-12)
    assert live_stage_activations(workers) == (workers**2, workers * (workers + 1) // 2)


@pytest.mark.parametrize(("workers", "percent"), [(4, 37.5), (8, 43.8), (32, 48.4)])
def test_counted_reductions_are_those_of_the_schedule(workers, percent):
    assert round(100 * cdp.counted_reduction(workers) + 1e-9, 1) == percent


def test_a_short_peak_is_seen_by_its_copies_too():
    curve = Curve(np.array([0.0, 0.5, 0.5001]), np.array([0.0, 8.0, 2.0]), 1.0)
    mean = mean_of_workers(curve, 4)
    assert mean.values.max() == (8.0 + 2.0) / 4, "one at its peak, one that is a quarter behind it, two before it"
    assert np.average(mean.values, weights=np.diff(np.append(mean.seconds, 1.0))) == pytest.approx(0.9998 + 0.0008)


def test_ranks_are_summed_where_all_are_known():
    one = Curve(np.array([0.0, 2.0]), np.array([1.0, 5.0]), 4.0)
    other = Curve(np.array([1.0, 3.0]), np.array([10.0, 20.0]), 5.0)
    total = sum_of_ranks([one, other])
    assert list(zip(total.seconds, total.values, strict=True)) == [
        (1.0, 11.0),
        (2.0, 15.0),
        (3.0, 25.0),
    ]
    assert total.end == 4.0


# ------------------------------------------------------------------------------------------------------------ drawn


def test_figure_4_has_both_metrics_and_says_what_is_not_run(small_version):
    results = small_version("cdp/figure_4", SMALLER_FIGURE_4)
    points = by_point(results)
    rows = cdp.reductions(points, results)
    assert len(rows) == 2 * len(cdp.MEMORY) * len(cdp.WORKERS)
    means = rows.groupby("model")["reduction"].mean()
    assert 0.05 < means["vgg13-cifar"] < means["gpt-mini"] < 0.5, "unequal layers gain less"
    comparison = cdp.figure_4(points, results)
    printed = comparison.rows.set_index("model")["printed"]
    assert (printed["resnet50"], printed["vit-b16"]) == ("30 %", "42 %")
    assert (comparison.rows.set_index("model").loc["resnet50", "N = 4"]) == "not run"
    assert "| any | counted stages, (N-1)/2N | 37.5 % | 43.8 % | 48.4 % |" in short_table(results)
    drawn = artists(figure_4.draw(results, points), "memory")
    assert set(drawn) == {f"{m}/{w}" for m in ("vgg13-cifar", "gpt-mini") for w in ("simultaneous", "4", "8", "32")}
    lowered = 1 - max(drawn["gpt-mini/32"].get_ydata()) / max(drawn["gpt-mini/simultaneous"].get_ydata())
    of_32 = rows[(rows["model"] == "gpt-mini") & (rows["workers"] == 32) & (rows["metric"] == figure_4.METRIC)]
    assert lowered == pytest.approx(of_32["reduction"].item())


def test_table_1_is_as_printed_where_it_counts_the_same(table_1):
    rows = cdp.table_1(by_point(table_1), table_1).rows.set_index(["row", "here"])
    activations = rows["activations"].str.removesuffix(" B A")
    assert float(activations["single-GPU DP", "all micro-batches in flight"]) == pytest.approx(3, rel=0.01)
    assert float(activations["single-GPU DP", "accumulation"]) == pytest.approx(1, rel=0.01)
    assert float(activations["single-GPU DP + cyclic", "v2"]) == pytest.approx(2, rel=0.02)
    assert rows.loc[("multi-GPU DP", "ddp"), "volume"] == "1.33 (1.33) W"
    assert rows.loc[("multi-GPU DP + cyclic", "v2"), "volume"].startswith("1.33 "), "2(N-1)/N in the mean"
    assert rows.loc[("multi-GPU DP", "ddp"), "steps"] == "4 (all_reduce)"
    assert int(rows.loc[("multi-GPU DP + cyclic", "v2"), "steps"]) <= 2
    naive = rows.loc[("DP with MP", "gpipe, a micro-batch a replica")]
    pyramid = rows.loc[("DP with MP + cyclic", "v2")]
    assert naive["activations"] == pyramid["activations"] == "0.36 B A", "a third, and what crosses a cut"
    assert (naive["parameters"], naive["steps"]) == ("0.34 P", "4 (all_reduce)"), "of three replicas of a stage"
    assert (naive["devices"], pyramid["devices"]) == ("9", "6"), "N^2 and N(N+1)/2"
    assert "not run" not in set(rows.to_numpy().ravel())
    assert rows.loc[("ZeRO-DP", "zero3"), "parameters"] == "0.33 P"
    assert len(rows) == len(cdp.ROWS)


def test_activations_of_a_cyclic_step_on_one_device_hardly_change(table_1):
    points = by_point(table_1)
    alone = points[points["num_ranks"] == 1].set_index("strategy_name", drop=False)
    [of_rank_0] = curves_of(table_1, alone.loc["gpipe"], ("activation",)).values()
    [curve] = curves_of(table_1, alone.loc["cdp-v2"], ("activation",)).values()
    assert curve.values.min() > 0.4 * curve.values.max(), (
        "steady from the first recorded step on: the fill is not there"
    )
    assert of_rank_0.values.min() < 0.05 * of_rank_0.values.max()


def test_figure_2_has_every_rank_of_every_row(table_1):
    held = artists(figure_2.draw(table_1, by_point(table_1)), "held")
    assert {
        "activation/cdp-v2 multi/0",
        "activation/cdp-v2 multi/2",
        "parameter/cdp-v2 pipeline/1",
    } <= set(held)
    assert not any("cdp-v1" in gid for gid in held)


def test_figure_1_has_a_row_a_rank_shifted_by_a_third_of_a_step(small_version):
    results = small_version("cdp/figure_1")
    points = by_point(results)
    figures = figure_1.draw(results, points)
    assert set(figures) == {"ddp", "cdp-v1", "cdp-v2"}
    boxes = artists({"cdp-v2": figures["cdp-v2"]}, "backward")
    begins = [boxes[f"{rank}/{rank}"].get_x() for rank in range(3)]
    assert begins == sorted(begins) and begins[2] - begins[0] > 0.2e3 * points["step_seconds"].max()
    assert "2/2/3" in boxes, "the fourth training step"
    assert set(artists({"ddp": figures["ddp"]}, "forward")) == {
        "0/0",
        "0/0/1",
        "0/0/2",
        "0/0/3",
    }
