"""The closed form part by part: with all else negligible, each part is the number that its formula says."""

import dataclasses

import numpy as np
import pytest
from runs_and_clusters import runs, weightless
from strata_analysis.fitted_cluster import COSTS
from strata_analysis.transformer_iteration import (
    first_stage_activation_bytes,
    layer_activation_bytes,
    sensitivities,
    transformer_iteration,
)

FULL, SELECTIVE = {"recomputation": "full"}, {"recomputation": "selective"}
SEQUENCE_PARALLEL = {"sequence_parallel": "yes"}


def split(tensor=1, data=1, pipeline=1, **changes):
    kinds = {"tensor_parallelism": tensor, "data_parallelism": data, "pipeline_parallelism": pipeline}
    return kinds | {"num_gpus": tensor * data * pipeline} | changes


def layer_seconds(cluster, *changes):
    return transformer_iteration(runs(*changes), cluster).layer_seconds


def assert_near(found, wanted):
    """But for what is negligible, and rounding."""
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_products_are_three_passes_over_24_m_h_squared():
    cluster = weightless({"product_share": 0.5}, peak_flops_per_second=1e6)
    products = 24.0 * (4 * 128) * 256 * 256 / 0.5e6
    attention = 4.0 * 4 * 8 * 128 * 128 * 32 / 0.35e6
    found = layer_seconds(cluster, {}, SELECTIVE, FULL, split(tensor=2))
    # What is recomputed costs its forward pass once more.
    wanted = [3 * products + 3 * attention, 3 * products + 4 * attention, 4 * products + 4 * attention]
    assert_near(found, [*wanted, wanted[0] / 2])


# Elements in units of 128 x 128, rounded up to waves of five tiles, times the depth in units of 128; of each product
# the output, the input's gradient and the weight's: (3 x 3, 3 x 1, 3 x 1) of QKV and so on.
SMALL_TILES = (10 * 1 + 5 * 3 + 5 * 3) + (5 * 1 + 5 * 1 + 5 * 3) + (15 * 1 + 5 * 4 + 5 * 3) + (5 * 4 + 15 * 1 + 5 * 3)
# Small tiles at half the rate: the large ones, half of each idle where the output is one tile wide, cost as much, and
# less of 3 x 4.
LARGE_TILES = (
    (20 * 1 + 10 * 3 + 10 * 3) + (10 * 1 + 10 * 1 + 10 * 3) + (20 * 1 + 10 * 4 + 10 * 3) + (10 * 4 + 20 * 1 + 10 * 3)
)


@pytest.mark.parametrize(
    ("multiprocessors", "small_tile_share", "wanted"),
    [
        (1, 1.0, 3.0 * 24 * 384 * 128 * 128),  # all tiles of 128 x 128 are full
        (5, 1.0, 2.0 * 128**3 * SMALL_TILES),
        (5, 0.5, 2.0 * 128**3 * LARGE_TILES),
    ],
)
def test_products_are_computed_in_waves_of_tiles_of_which_the_cheaper_count(multiprocessors, small_tile_share, wanted):
    cluster = weightless(
        {"small_tile_share": small_tile_share}, peak_flops_per_second=1.0, multiprocessors=multiprocessors
    )
    run = {"hidden_size": 128, "attention_heads": 4, "micro_batch": 3, "global_batch": 48}  # M = 384 rows
    attention = 3.0 * 4.0 * 3 * 4 * 128 * 128 * 32 / 0.35
    assert_near(layer_seconds(cluster, run) - attention, wanted)


def test_bytes_go_at_the_share_of_the_memory_bandwidth():
    cluster = weightless({"memory_share": 0.5}, memory_bandwidth_bytes_per_second=1e6)
    elements = 4.0 * 128 * 256
    sharded, scores = 86.0 * elements / 4, 32.0 * (4.0 * 8 / 4 * 128 * 128)
    found = layer_seconds(cluster, split(tensor=4), split(tensor=4) | SEQUENCE_PARALLEL, split(tensor=4) | FULL)
    alone = 64 * elements + sharded + scores
    wanted = [alone, 64 * elements / 4 + sharded + scores, 4.0 / 3.0 * alone]
    assert_near(found, np.array(wanted) / 0.5e6)


def test_tensor_groups_reduce_four_times_a_layer_six_with_recomputation():
    costs = {
        "tensor_latency_seconds": 1.0,
        "tensor_bandwidth_bytes_per_second": 1e6,
        "node_bandwidth_bytes_per_second": 1e3,
    }
    sent = 2.0 * 4 * 128 * 256
    alone, *found = layer_seconds(
        weightless(costs), {}, split(tensor=4), split(tensor=4) | FULL, split(tensor=8) | FULL
    )
    assert alone < 1e-9
    wanted = [4 * (1 + sent * 2 * 3 / 4 / 1e6), 6 * (1 + sent * 2 * 3 / 4 / 1e6), 6 * (1 + sent * 2 * 7 / 8 / 1e6)]
    assert_near(found, wanted)
    over_nodes = layer_seconds(weightless(costs, devices_per_node=4), split(tensor=8) | FULL)
    assert_near(over_nodes, 6 * (1 + sent * 2 * 7 / 8 / 1e3))


def test_host_and_device_overlap_by_the_exponent():
    costs = {"launch_seconds": 3.0}
    assert_near(layer_seconds(weightless(costs), {}), 3.0)
    # A device of 4 seconds beside it, by bytes.
    moved = (64.0 + 86.0) * 4 * 128 * 256 + 32.0 * 4 * 8 * 128 * 128
    found = {
        q: layer_seconds(
            weightless(costs | {"launch_overlap_exponent": q}, memory_bandwidth_bytes_per_second=moved / 4.0), {}
        )
        for q in (2.0, 1.0, 1000.0)
    }
    assert_near(found[2.0], 5.0)  # sqrt(9 + 16)
    assert_near(found[1.0], 7.0)  # no overlap
    np.testing.assert_allclose(found[1000.0], 4.0, atol=1e-3)  # perfect, and no power of it overflows


def test_the_host_launches_more_with_tensor_parallelism_and_unfused_softmax():
    costs = {
        "launch_seconds": 1.0,
        "full_node_launch_factor": 1.5,
        "unfused_softmax_seconds": 10.0,
    }
    unfused = split(tensor=8, micro_batch=2)  # 2 matrices a rank: not four
    found = layer_seconds(weightless(costs), {}, split(tensor=4), split(tensor=8), unfused, unfused | FULL)
    full_node = 1.1 * 1.5
    assert_near(found, [1.0, 1.1, full_node, full_node + 10.0, 4.0 / 3.0 * (full_node + 10.0)])


def test_pipelines_fill_and_drain():
    stages = split(pipeline=4)  # 16 micro-batches, 12 layers
    pieces = stages | {"virtual_stages": 3}
    replicas = split(pipeline=4, data=2, virtual_stages=3)

    def estimate(costs, *changes, **fields):
        return transformer_iteration(runs(*changes), weightless(costs, **fields))

    found = estimate({"launch_seconds": 1.0}, {}, stages, pieces, replicas).seconds
    assert_near(found, [16 * 12, (16 + 3) * 3, (16 + 3 / 3) * 3, (8 + 1) * 3])
    # Every piece of a stage is sent.
    sent = {"tensor_bandwidth_bytes_per_second": 4.0 * 4 * 128 * 256}
    assert_near(estimate(sent, replicas).slots_seconds, 9.0 * 3.0)
    # The two ranks of a stage share the node's way out.
    shared = sent | {"node_bandwidth_bytes_per_second": 2.0 * 4.0 * 4 * 128 * 256}
    assert_near(estimate(shared, replicas, devices_per_node=2).slots_seconds, 9.0 * 3.0)
    slots = estimate({"slot_seconds": 2.0}, replicas, devices_per_node=2)
    assert_near(slots.slots_seconds, 9.0 * 2.0)
    assert_near(slots.seconds, 9.0 * 2.0)


# 16 ranks, 4 micro-batches.
SIXTEEN = split(tensor=2, data=4, pipeline=2)
WEIGHTS = (12.0 * 256 * 256 * 12 / 2 + 512.0 * 256) / 2


@pytest.mark.parametrize(
    ("devices_per_node", "node_bandwidth", "rate"),
    [
        (8, 1e6, 1e9),  # a stage's eight ranks fill a node: its replicas meet there
        (4, 1e6, 0.5e6),  # over two nodes, the groups of both tensor shards share what leaves them
        (4, 1e30, 1e9),  # never faster than inside a node
    ],
)
def test_gradients_are_reduced_once_a_step(devices_per_node, node_bandwidth, rate):
    costs = {"tensor_bandwidth_bytes_per_second": 1e9}
    cluster = weightless(costs | {"node_bandwidth_bytes_per_second": node_bandwidth}, devices_per_node=devices_per_node)
    alone = split(tensor=2, pipeline=2, global_batch=16)
    estimate = transformer_iteration(runs(SIXTEEN, alone), cluster)
    wanted = 2.0 * WEIGHTS * 2.0 * 3.0 / 4.0 / rate
    assert_near(estimate.reduce_seconds[0], wanted)
    assert estimate.reduce_seconds[1] == 0.0
    if node_bandwidth == 1e30:
        # Inside a node the all-reduces of tensor groups are as fast: beside this, all else that takes time.
        assert_near(estimate.seconds[0] - estimate.layers_seconds[0] - estimate.slots_seconds[0], wanted)


def test_head_and_update_are_once_a_micro_batch_and_once_a_step():
    costs = {
        "memory_share": 0.5,
        "step_seconds": 7.0,
        "product_share": 0.25,
        "unsharded_head_share": 0.5,
    }
    cluster = weightless(costs, memory_bandwidth_bytes_per_second=1e6, peak_flops_per_second=1e6)
    of_two = split(tensor=2, pipeline=2, global_batch=16)
    estimate = transformer_iteration(runs(of_two, split(pipeline=2, global_batch=16)), cluster)
    assert_near(estimate.update_seconds[0], 7.0 + 28.0 * WEIGHTS / 0.5e6)
    logits = 4.0 * 128 * 512
    sharded = 4 * (6 * logits / 2 * 256 / 0.25e6 + 52 * logits / 2 / 0.5e6)
    assert_near(estimate.head_seconds, [sharded, 4 * (6 * logits * 256 / 0.5e6 + 52 * logits / 0.5e6)])


def test_measured_ratios_apply_to_their_shape_and_say_how():
    ratios = {(256, 8, 128, 1, 2): 0.5, (256, 8, 128, 1, 8): 2.0, (256, 8, 256, 1, 4): 7.0}
    cluster = weightless({"launch_seconds": 1.0}, ratios=ratios)
    changes = [{"micro_batch": b} for b in (2, 4, 8, 16, 1)]
    changes.append({"micro_batch": 2, "attention_heads": 4})
    estimate = transformer_iteration(runs(*changes), cluster)
    # Half way in log b, between 1/2 and 2; another shape: the formula alone.
    assert_near(estimate.layer_seconds, [0.5, 1.0, 2.0, 2.0, 0.5, 1.0])
    wanted = ["measured", "interpolated", "measured", "extrapolated", "extrapolated", "formula"]
    assert estimate.basis.tolist() == wanted


def test_sensitivities_are_the_parts_shares():
    cluster = weightless({"slot_seconds": 1.0, "step_seconds": 48.0})
    found = dict(zip(COSTS, sensitivities(runs({}, split(pipeline=4)), cluster).T, strict=True))
    share = np.array([16 / 64, 19 / 67])  # of the slots, one a micro-batch and three to fill
    np.testing.assert_allclose(found.pop("slot_seconds"), share, atol=1e-9)
    np.testing.assert_allclose(found.pop("step_seconds"), 1 - share, atol=1e-9)
    np.testing.assert_allclose(list(found.values()), 0.0, atol=1e-9)


def test_several_sets_of_costs_are_as_one_after_another():
    sets = [{"launch_seconds": 1.0}, {"launch_seconds": 3.0, "slot_seconds": 2.0}]
    both = {name: np.array([[weightless(costs).costs[name]] for costs in sets]) for name in COSTS}
    table = runs({}, split(tensor=2), SIXTEEN | FULL)
    found = transformer_iteration(table, dataclasses.replace(weightless(), costs=both)).seconds
    wanted = [transformer_iteration(table, weightless(costs)).seconds for costs in sets]
    np.testing.assert_array_equal(found, wanted)


def published(h, a, layers, b, p, v):
    """Korthikanti et al. 2022, table 3."""
    kinds = split(tensor=8, pipeline=p, virtual_stages=v, global_batch=p * b, micro_batch=b)
    model = {"hidden_size": h, "attention_heads": a, "layers": layers, "sequence_length": 2048}
    return kinds | model | {"vocabulary_size": 51200}


# Figure 1, in GiB: tensor parallelism alone; sequence parallelism and selective recomputation.
FIGURE_1 = [
    (published(6144, 64, 48, 4, 1, 1), 59.25, 9.5625),
    (published(12288, 96, 96, 1, 8, 3), 66.84375, 12.3515625),
    (published(20480, 128, 105, 1, 35, 3), 114.0234375, 23.076171875),
    (published(25600, 160, 128, 1, 64, 1), 131.25, 26.5625),
]
CORE = 5.0 * 64 * 2048 / 6144  # 5as/h


@pytest.mark.parametrize(
    ("tensor", "changes", "wanted"),
    [
        (1, {}, 34 + CORE),
        (8, {}, 10 + 24.0 / 8 + CORE / 8),
        (8, SEQUENCE_PARALLEL, 34.0 / 8 + CORE / 8),
        (8, SELECTIVE, 10 + 24.0 / 8),
        (8, SEQUENCE_PARALLEL | SELECTIVE, 34.0 / 8),
        (8, FULL, 2.0),
    ],
)
def test_activations_of_one_layer_are_table_2(tensor, changes, wanted):
    table = runs(FIGURE_1[0][0] | split(tensor=tensor) | changes)
    assert layer_activation_bytes(table)[0] / (2048.0 * 4 * 6144) == pytest.approx(wanted, rel=4e-16, abs=0.0)


def test_activations_of_the_first_stage_are_figure_1():
    gib = 2.0**30
    without = first_stage_activation_bytes(runs(*(run for run, _, _ in FIGURE_1))) / gib
    np.testing.assert_allclose(without, [wanted for _, wanted, _ in FIGURE_1], rtol=4e-16)
    present = runs(*(run | SEQUENCE_PARALLEL | SELECTIVE for run, _, _ in FIGURE_1))
    wanted = [wanted for _, _, wanted in FIGURE_1]
    np.testing.assert_allclose(first_stage_activation_bytes(present) / gib, wanted, rtol=4e-16)


def test_a_table_is_predicted_row_by_row():
    """A run's estimate does not depend on the others of its table."""
    cluster = weightless({"launch_seconds": 1.0}, ratios={(256, 8, 128, 2, 4): 1.5}, peak_flops_per_second=1e6)
    changes = [SIXTEEN, {}, split(tensor=2) | FULL, SIXTEEN]
    table = transformer_iteration(runs(*changes).set_index([[7, 7, 3, 0]]), cluster)
    for i, change in enumerate(changes):
        alone = transformer_iteration(runs(change), cluster)
        assert table.seconds[i] == alone.seconds[0]
        assert table.basis[i] == alone.basis[0]
