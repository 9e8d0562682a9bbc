"""The closed form of a transformer's training iteration: seconds and activation bytes from a dozen numbers of the run
and the fitted costs of its cluster, without graph, plan or Program. For runs that strata has no Program of.

Symbols: h hidden_size, a attention_heads, L layers, s sequence_length, V vocabulary_size, b micro_batch, m
micro-batches of one replica in a step, t, d, p tensor, data and pipeline parallelism, v virtual_stages; P peak FLOP/s
of the dtype, B the memory bandwidth, M = b·s tokens, G devices of a node; whole words are fitted_cluster.COSTS.

  T       = (m + (p-1)/v) · (L/p · layer + slot_seconds + v · send) + m · head + reduce + update
  layer   = ratio(h, a, s, t, b) · (device^q + host^q)^(1/q),  q = launch_overlap_exponent
  device  = Σ ((k-2)·product(M, N, K) + product(M, K, N) + product(N, K, M))
          + k_a · 4·b·(a/t)·s²·(h/a) / (ATTENTION_SHARE · P)
          + (k · (REPLICATED_BYTES·M·h + SHARDED_BYTES·M·h/t) + k_a · SCORE_BYTES·b·(a/t)·s²) / (memory_share · B)
          + c · (tensor_latency + 2·M·h · 2(t-1)/t / tensor_bandwidth)        [t > 1; t > G: N for tensor_bandwidth]
            over (N, K) = (3h/t, h), (h, h/t), (4h/t, h), (h, 4h/t): output, gradient of the input, of the weight
  product(rows, columns, depth) = 2 · elements · depth / (product_share · P)
  elements = 128·256 · S·⌈tiles/S⌉, or if fewer 128·128 · S·⌈tiles/S⌉ / small_tile_share: whole waves of tiles, each
            tile on one of S = multiprocessors
  k       = passes over a layer: forward 1, backward 2, one more with full recomputation; k_a: the attention core's,
            one more with selective too; c = 4 all-reduces, 6 with full recomputation
  host    = k/3 · (launch_seconds, · TENSOR_LAUNCH_FACTOR with t > 1, · full_node_launch_factor where t fills a node,
            + unfused_softmax_seconds where b·a/t is no multiple of 4: Megatron-LM's fused softmax takes four matrices
            a block, FusedScaleMaskSoftmax.is_kernel_available)
  head    = 3 · 2·M·h·V/t / (product_share · P) + LOGIT_BYTES·M·V/t / (memory_share · B); unsharded_head_share at t = 1
  send    = 4·M·h/t / rate, both directions, 2 bytes each                     [p > 1]
            rate = tensor_bandwidth where the run fits a node, else N / min(t·d, G)
  reduce  = 2 bytes · 2(d-1)/d · W / rate                                     [d > 1], W = (12·h²·L/p + V·h)/t
            rate = tensor_bandwidth, but N / min(t, G) at most where t·d > G
  update  = step_seconds + UPDATE_BYTES · W / (memory_share · B)
Sequence parallelism divides the replicated elements by t; its all-gathers and reduce-scatters move an all-reduce's
bytes.

N = node_bandwidth is shared by the G ranks of a node. Ranks are ordered tensor, data, pipeline (Megatron-LM,
parallel_state.py), so that the replicas' all-reduces of a node's min(t, G) shards are out at once, each one ring in and
out of the node; a tensor group of more than G ranks is one such ring and has N to itself; the min(t·d, G) ranks of a
stage in a node send at once, each its 1/t of the activations (Narayanan et al. 2021, sec. 4.1).

Sources: GEMM and memory terms are a roofline by operator as in Calculon (Isaev et al. 2023) and vTrain (Bang et al.
2024); tiles and waves: NVIDIA, Matrix Multiplication Background User's Guide; slots of 1F1B: Narayanan et al. 2021,
sec. 2.2; all-reduces and passes: Korthikanti et al. 2022, sec. 4 and 5.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from strata_analysis.fitted_cluster import COSTS, SHAPE, FittedCluster

ELEMENT_BYTES = 2.0  # activations, weights and gradients that are sent: half precision
TILE_SIDE = 128.0
# Bytes that Megatron-LM's elementwise kernels read and write, counted kernel by kernel at 2 bytes an element, 1 a
# dropout mask and 4 in single precision. They are no parameters, because iterations hardly tell one from another, and
# their common scale not at all from memory_share. The first three are a third of forward and backward pass together,
# for each element of b·s·h or score.
# On every rank, twice a layer: forward a LayerNorm (4) and bias, dropout and residual (7); backward both gradients of
# the LayerNorm (6 + 4), the dropout's (5), and the sum with the residual's (6).
REPLICATED_BYTES = 2.0 * (4.0 + 7.0 + 6.0 + 4.0 + 5.0 + 6.0) / 3.0
# Of which a rank holds 1/t: GELU of 4h forward and backward (16 + 24), the gradients of the biases of 4h and 3h
# (8 + 6), the bias of QKV (12), its three gradients put side by side (12), heads permuted both ways (4 + 4).
SHARDED_BYTES = (16.0 + 24.0 + 8.0 + 6.0 + 12.0 + 12.0 + 4.0 + 4.0) / 3.0
# For each attention score: forward written and read by the two products (4), softmax (4), dropout (5); backward the
# dropout (5), the softmax (6), the products' four (8).
SCORE_BYTES = (4.0 + 4.0 + 5.0 + 5.0 + 6.0 + 8.0) / 3.0
# For each logit, forward and backward: to single precision and back (6 + 6), the largest (4), the difference to it (8),
# its exponential (8), their sum (4), the quotient (8), times the loss's gradient (8).
LOGIT_BYTES = 6.0 + 6.0 + 4.0 + 8.0 + 8.0 + 4.0 + 8.0 + 8.0
# For each weight: Adam reads and writes it and two moments in single precision (24), reads the gradient, writes the
# weight of half precision (4).
UPDATE_BYTES = 24.0 + 4.0
# Of the peak: the two batched products of the attention core, whose depth or width is that of one head. The rows leave
# it open by a factor of 1.5 either way.
ATTENTION_SHARE = 0.35
# A layer's all-reduces are launched beside its other kernels: two fitted times differed by 9 %, and one time with this
# factor predicts layer shapes that were left out better than two.
TENSOR_LAUNCH_FACTOR = 1.1
# By recomputation: passes over a layer, over its attention core, and a layer's all-reduces.
PASSES = {"none": (3.0, 3.0, 4.0), "selective": (3.0, 4.0, 4.0), "full": (4.0, 4.0, 6.0)}
SENSITIVITY_STEP = 1e-5  # of a parameter's logarithm


@dataclass(frozen=True)
class IterationEstimate:
    """Seconds of one iteration by part, all of the slowest stage: arrays (runs,), or (sets, runs) where the cluster has
    several sets of costs and the part depends on them."""

    seconds: np.ndarray
    layer_seconds: np.ndarray  # one layer, one micro-batch, forward and backward
    layers_seconds: np.ndarray  # all layers' part of seconds, with the pipeline's fill and drain
    head_seconds: np.ndarray  # output layer and loss
    slots_seconds: np.ndarray  # what a micro-batch costs a stage beside its layers, sends among it
    reduce_seconds: np.ndarray  # gradients over replicas
    update_seconds: np.ndarray  # optimizer and the step's constant part
    # Of layer_seconds: formula alone, or scaled by ratios of this shape: measured at this micro-batch, interpolated
    # between measured ones, or extrapolated.
    basis: np.ndarray


class _Sizes:
    """The runs' numbers as reals (runs,), under the formula's names; its capitals are written out."""

    def __init__(self, runs: pd.DataFrame):
        def real(name: str) -> np.ndarray:
            return runs[name].to_numpy(float)

        self.h, self.a, self.s, self.b = map(real, ("hidden_size", "attention_heads", "sequence_length", "micro_batch"))
        self.t, self.d, self.p = (real(f"{kind}_parallelism") for kind in ("tensor", "data", "pipeline"))
        self.v, self.layers = real("virtual_stages"), real("layers")
        self.m = real("global_batch") // (self.b * self.d)
        self.tokens = self.b * self.s
        self.scores = self.b * self.a / self.t * self.s * self.s
        self.is_sequence_parallel = (runs["sequence_parallel"] == "yes").to_numpy()
        passes = np.array([PASSES[word] for word in runs["recomputation"]])
        self.passes, self.attention_passes, self.all_reduces = passes.T


def transformer_iteration(runs: pd.DataFrame, cluster: FittedCluster) -> IterationEstimate:
    """@param runs a row a run, columns as of measured_runs.parse_measured_runs, `vocabulary_size` and `recomputation`
    among them."""
    c, r = cluster.costs, _Sizes(runs)
    peak = cluster.peak_flops_per_second
    bandwidth = c["memory_share"] * cluster.memory_bandwidth_bytes_per_second
    node_bandwidth = c["node_bandwidth_bytes_per_second"]
    tensor_bandwidth = c["tensor_bandwidth_bytes_per_second"]

    # The larger is taken out, so that no power overflows.
    device, host = _device_seconds(r, cluster), _host_seconds(r, cluster)
    larger = np.maximum(device, host)
    q = c["launch_overlap_exponent"]
    ratios, basis = _layer_ratios(runs, cluster.ratios)
    layer_seconds = ratios * larger * (1.0 + (np.minimum(device, host) / larger) ** q) ** (1.0 / q)
    slots = r.m + (r.p - 1.0) / r.v
    layers_seconds = slots * r.layers / r.p * layer_seconds

    fits_a_node = r.t * r.d * r.p <= cluster.devices_per_node
    shared = node_bandwidth / np.minimum(r.t * r.d, cluster.devices_per_node)
    send = 2.0 * ELEMENT_BYTES * r.tokens * r.h / r.t / np.where(fits_a_node, tensor_bandwidth, shared)
    slots_seconds = slots * (c["slot_seconds"] + r.v * np.where(r.p > 1, send, 0.0))

    logits = r.tokens * runs["vocabulary_size"].to_numpy(float) / r.t
    head_share = np.where(r.t == 1, c["unsharded_head_share"], c["product_share"])
    head_seconds = r.m * (6.0 * logits * r.h / (head_share * peak) + LOGIT_BYTES * logits / bandwidth)

    weights = (12.0 * r.h * r.h * r.layers / r.p + runs["vocabulary_size"].to_numpy(float) * r.h) / r.t
    shared = node_bandwidth / np.minimum(r.t, cluster.devices_per_node)
    over_nodes = np.minimum(tensor_bandwidth, shared)
    rate = np.where(r.t * r.d > cluster.devices_per_node, over_nodes, tensor_bandwidth)
    reduce_seconds = ELEMENT_BYTES * weights * 2.0 * (r.d - 1.0) / r.d / rate
    update_seconds = c["step_seconds"] + UPDATE_BYTES * weights / bandwidth

    seconds = layers_seconds + slots_seconds + head_seconds + reduce_seconds + update_seconds
    return IterationEstimate(
        seconds, layer_seconds, layers_seconds, head_seconds, slots_seconds, reduce_seconds, update_seconds, basis
    )


def sensitivities(runs: pd.DataFrame, cluster: FittedCluster) -> np.ndarray:
    """d ln(seconds) / d ln(parameter) by central differences: (runs, COSTS)."""
    steps = SENSITIVITY_STEP * np.vstack([np.eye(len(COSTS)), -np.eye(len(COSTS))])
    costs = {name: cluster.costs[name] * np.exp(steps[:, [i]]) for i, name in enumerate(COSTS)}
    logarithms = np.log(transformer_iteration(runs, dataclasses.replace(cluster, costs=costs)).seconds)
    above, below = np.split(logarithms, 2)
    return (above - below).T / (2.0 * SENSITIVITY_STEP)


def layer_activation_bytes(runs: pd.DataFrame) -> np.ndarray:
    """Bytes that one layer keeps of one micro-batch for its backward pass, at 2 bytes an element and 1 a dropout mask,
    on one rank: (runs,).

    Korthikanti et al. 2022, eqs. 1 to 6 and table 2: without parallelism s·b·h·(34 + 5·a·s/h); t ranks
    s·b·h·(10 + 24/t + 5·a·s/(h·t)); with sequence parallelism everything over t; selective recomputation without the
    term of the scores; full: the layer's input alone, 2·s·b·h (over t with sequence parallelism, which keeps a shard).
    """
    r = _Sizes(runs)
    recomputation = runs["recomputation"].to_numpy()
    unit = r.tokens * r.h  # elements of one b·s·h tensor
    # What stays whole on every rank of a tensor group unless the sequence is split.
    whole = np.where(r.is_sequence_parallel, unit / r.t, unit)
    sharded = unit / r.t
    layer_norms = 2.0 * 2.0 * whole  # the inputs of two
    product_inputs = 2.0 * 2.0 * whole  # of the QKV and of the first MLP product
    masks = 2.0 * whole  # of two dropouts
    attention = (2.0 * 3.0 + 2.0) * sharded  # Q, K, V; the input of the output projection
    mlp = (2.0 * 4.0 + 2.0 * 4.0) * sharded  # the inputs of GELU and of the second product
    core = np.where(recomputation == "selective", 0.0, (2.0 + 1.0 + 2.0) * r.scores)  # softmax, mask, dropout
    kept = layer_norms + product_inputs + masks + attention + mlp + core
    return np.where(recomputation == "full", 2.0 * whole, kept)


def first_stage_activation_bytes(runs: pd.DataFrame) -> np.ndarray:
    """Of a rank of the first stage under 1F1B, which keeps p micro-batches of L/p layers: L layers, times
    1 + (p-1)/(p·v) where stages are interleaved (v > 1): (runs,). The embedding's dropout is left out. Korthikanti et
    al. 2022, sec. 4.2.3."""
    r = _Sizes(runs)
    interleaved = np.where(r.v > 1, 1.0 + (r.p - 1.0) / (r.p * r.v), 1.0)
    return layer_activation_bytes(runs) * r.layers * interleaved


def _layer_ratios(runs: pd.DataFrame, ratios: dict[tuple[int, ...], float]) -> tuple[np.ndarray, np.ndarray]:
    """How much longer a layer takes than the formula says, and the basis of that: linear between the measured
    micro-batches of a shape in log b, constant outside, 1 for other shapes."""
    of_shape: dict[tuple[int, ...], dict[int, float]] = {}
    for (*shape, micro_batch), ratio in sorted(ratios.items()):
        of_shape.setdefault(tuple(shape), {})[micro_batch] = ratio
    values, basis = np.ones(len(runs)), np.full(len(runs), "formula", dtype=object)
    for shape, rows in runs.reset_index(drop=True).groupby(SHAPE).groups.items():
        if shape not in of_shape:
            continue
        measured = np.array(list(of_shape[shape]))
        b = runs["micro_batch"].to_numpy()[rows]
        values[rows] = np.exp(np.interp(np.log(b), np.log(measured), np.log(list(of_shape[shape].values()))))
        outside = (b < measured[0]) | (b > measured[-1])
        basis[rows] = np.select([np.isin(b, measured), outside], ["measured", "extrapolated"], "interpolated")
    return values, basis


def _device_seconds(r: _Sizes, cluster: FittedCluster) -> np.ndarray:
    """What a layer occupies its device for, forward and backward."""
    c, peak = cluster.costs, cluster.peak_flops_per_second

    def product(columns: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """Forward, and the backward pass's two: the input's gradient and the weight's."""
        return (
            (r.passes - 2.0) * _product_seconds(r.tokens, columns, depth, cluster)
            + _product_seconds(r.tokens, depth, columns, cluster)
            + _product_seconds(columns, depth, r.tokens, cluster)
        )

    products = (
        product(3.0 * r.h / r.t, r.h)
        + product(r.h, r.h / r.t)
        + product(4.0 * r.h / r.t, r.h)
        + product(r.h, 4.0 * r.h / r.t)
        + r.attention_passes * 4.0 * r.scores * r.h / r.a / (ATTENTION_SHARE * peak)
    )
    replicated = r.tokens * r.h / np.where(r.is_sequence_parallel, r.t, 1.0)
    moved = r.passes * (REPLICATED_BYTES * replicated + SHARDED_BYTES * r.tokens * r.h / r.t)
    moved = moved + r.attention_passes * SCORE_BYTES * r.scores
    bandwidth = np.where(
        r.t > cluster.devices_per_node, c["node_bandwidth_bytes_per_second"], c["tensor_bandwidth_bytes_per_second"]
    )
    ring = c["tensor_latency_seconds"] + ELEMENT_BYTES * r.tokens * r.h * 2.0 * (r.t - 1.0) / r.t / bandwidth
    all_reduces = np.where(r.t > 1, r.all_reduces * ring, 0.0)
    return products + moved / (c["memory_share"] * cluster.memory_bandwidth_bytes_per_second) + all_reduces


def _product_seconds(rows: np.ndarray, columns: np.ndarray, depth: np.ndarray, cluster: FittedCluster) -> np.ndarray:
    """A matrix product of rows x columns outputs, each a sum over depth, in tiles whose last wave leaves
    multiprocessors idle."""
    c, wave = cluster.costs, cluster.multiprocessors
    row_tiles = np.ceil(rows / TILE_SIDE)
    small_tile = TILE_SIDE * TILE_SIDE
    large = np.ceil(row_tiles * np.ceil(columns / (2.0 * TILE_SIDE)) / wave) * (2.0 * small_tile)
    small = np.ceil(row_tiles * np.ceil(columns / TILE_SIDE) / wave) * (small_tile / c["small_tile_share"])
    element_seconds = 2.0 / (c["product_share"] * cluster.peak_flops_per_second)
    return element_seconds * wave * np.minimum(large, small) * depth


def _host_seconds(r: _Sizes, cluster: FittedCluster) -> np.ndarray:
    """What its host takes to launch a layer's kernels, forward and backward."""
    c = cluster.costs
    full_node = np.where(r.t >= cluster.devices_per_node, c["full_node_launch_factor"], 1.0)
    launch = c["launch_seconds"] * np.where(r.t > 1, TENSOR_LAUNCH_FACTOR * full_node, 1.0)
    matrices_a_block = 4
    is_fused = r.b * r.a % (r.t * matrices_a_block) == 0
    return r.passes / 3.0 * (launch + np.where(is_fused, 0.0, c["unfused_softmax_seconds"]))
