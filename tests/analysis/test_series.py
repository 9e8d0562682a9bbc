"""A series is named by what tells points apart at equal ranks, and by nothing else."""

import math

import pandas as pd
from strata_analysis.derive import link_in_words
from strata_analysis.series import labels_of, separating_axes

POINT = {
    "experiment_name": "x",
    "model_name": "gpt",
    "strategy_name": "ddp",
    "num_ranks": 1,
    "dtype": "fp32",
    "threads_per_rank": 1,
    "backend": "cpu",
    "link": "",
    "simulated": 0,
    "point_keys": "",
}


def labels(*points):
    return list(labels_of(pd.DataFrame([POINT | point for point in points])))


def keys(**values):
    return "\n".join(f"{name.replace('__', '.')} = {value}" for name, value in values.items())


def test_what_follows_from_ranks_is_no_part_of_a_label():
    found = labels(
        {"num_ranks": 8, "point_keys": keys(train__micro_batches=4)},
        {"num_ranks": 16, "point_keys": keys(train__micro_batches=2)},
        {"num_ranks": 32},
    )
    assert found == ["ddp", "ddp", "ddp"]


def test_options_that_follow_from_the_strategy_are_none_either():
    mics = {"strategy_name": "mics", "point_keys": keys(strategy__group='"8x1"')}
    assert labels({}, mics) == ["ddp", "mics"]


def test_an_option_that_separates_is_named_for_its_own_strategy_alone():
    stages = [{"strategy_name": "gpipe", "point_keys": keys(strategy__stages=n)} for n in (2, 4)]
    assert labels({}, *stages) == ["ddp", "gpipe, stages 2", "gpipe, stages 4"]


def test_of_axes_that_go_together_one_is_named():
    both = [{"point_keys": keys(train__global_batch=n, train__learning_rate=1e-3 * n)} for n in (1, 2)]
    assert labels(*both) == ["ddp, global_batch 1", "ddp, global_batch 2"]


def test_columns_are_named_where_they_separate():
    assert labels({}, {"dtype": "bf16"}) == ["ddp, fp32", "ddp, bf16"]
    assert labels({}, {"threads_per_rank": 2}) == ["ddp, 1 thread a rank", "ddp, 2 threads a rank"]
    assert labels({"dtype": "bf16"}, {"dtype": "bf16", "num_ranks": 2}) == ["ddp", "ddp"]


def test_simulated_and_measured_never_share_a_series():
    assert labels({}, {"num_ranks": 2, "simulated": 1, "backend": "simulated"}) == ["ddp", "ddp, simulated"]
    assert labels({}, {"num_ranks": 2, "link": "emulated link 1 Gbit/s"}) == ["ddp", "ddp, emulated link 1 Gbit/s"]


def test_models_are_told_apart_elsewhere():
    assert labels({}, {"model_name": "vgg", "dtype": "bf16"}) == ["ddp", "ddp"]


def test_the_axis_that_separates_most_is_taken_first():
    axes = [{"few": str(n // 2), "many": str(n)} for n in range(4)]
    assert separating_axes(axes, [0] * 4) == ["many"]
    assert separating_axes(axes, range(4)) == []


def test_links_that_were_emulated_are_said_in_words():
    real = {
        f"emulated_{link}_{key}": math.nan
        for link in ("link", "inside")
        for key in ("alpha_seconds", "bytes_per_second")
    }
    link = {"emulated_link_alpha_seconds": 20e-6, "emulated_link_bytes_per_second": 1.25e8}
    inside = {"emulated_inside_alpha_seconds": 5e-6, "emulated_inside_bytes_per_second": 12.5e9}
    assert link_in_words(pd.Series(real)) == ""
    assert link_in_words(pd.Series(real | link)) == "emulated link 20 µs, 1 Gbit/s"
    assert (
        link_in_words(pd.Series(real | link | inside)) == "emulated link 20 µs, 1 Gbit/s; inside nodes 5 µs, 100 Gbit/s"
    )
