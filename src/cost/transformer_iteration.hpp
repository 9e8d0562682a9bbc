#pragma once

/// @file
/// The closed form of a transformer's training iteration: seconds and activation bytes from a dozen numbers of the run
/// and the fitted costs of its cluster, without graph, plan or Program. For runs that strata has no Program of, and for
/// searches that need a hundred thousand answers a second.

#include <cstdint>

#include "cost/cost_model.hpp"
#include "ir/machine/cluster.hpp"
#include "ir/machine/transformer_run.hpp"

namespace strata {

/// Seconds of one iteration by part; all are of the slowest stage.
struct IterationEstimate {
  double seconds = 0.0;
  double layer_seconds = 0.0;    ///< one layer, one micro-batch, forward and backward
  double layers_seconds = 0.0;   ///< all layers' part of seconds, with the pipeline's fill and drain
  double head_seconds = 0.0;     ///< output layer and loss
  double slots_seconds = 0.0;    ///< what a micro-batch costs a stage beside its layers, sends among it
  double reduce_seconds = 0.0;   ///< gradients over replicas
  double update_seconds = 0.0;   ///< optimizer and the step's constant part
  Basis basis = Basis::formula;  ///< of layer_seconds: formula alone, or scaled by ratios measured at this shape,
                                 ///< between or outside its measured micro-batches
};

/// Symbols as in TransformerRun; P peak FLOP/s of the dtype, B the memory bandwidth, M = b·s tokens; all lower-case
/// names are fields of TransformerCosts.
///
///   T       = (m + (p−1)/v) · (L/p · layer + slot_seconds + v · send) + m · head + reduce + update
///   layer   = ratio(h, a, s, t, b) · (device^q + host^q)^(1/q),  q = launch_overlap_exponent
///   device  = Σ ((k−2)·product(M, N, K) + product(M, K, N) + product(N, K, M))
///           + k_a · 4·b·(a/t)·s²·(h/a) / (attention_share · P)
///           + (k · (replicated_bytes·M·h + sharded_bytes·M·h/t) + k_a · score_bytes·b·(a/t)·s²) / (memory_share · B)
///           + c · (tensor_latency + 2·M·h · 2(t−1)/t / tensor_bandwidth)        [t > 1; t > G: N for tensor_bandwidth]
///             over (N, K) = (3h/t, h), (h, h/t), (4h/t, h), (h, 4h/t): output, gradient of the input, of the weight
///   product(rows, columns, depth) = 2 · elements · (depth + half_depth) / (product_share · P)
///   elements = 128·256 · S·⌈tiles/S⌉, or if fewer 128·128 · S·⌈tiles/S⌉ / small_tile_share: whole waves of tiles, each
///             tile on one of S = multiprocessors
///   k       = passes over a layer: forward 1, backward 2, one more with full recomputation; k_a: the attention core's,
///             one more with selective too; c = 4 all-reduces, 6 with full recomputation
///   host    = k/3 · (launch_seconds, or with t > 1: tensor_launch_seconds · full_node_launch_factor where t fills a
///             node, + unfused_softmax_seconds where b·a/t is no multiple of 4: Megatron-LM's fused softmax takes four
///             matrices a block, FusedScaleMaskSoftmax.is_kernel_available)
///   head    = 3 · 2·M·h·V/t / (head_share · P) + logit_bytes·M·V/t / (memory_share · B); unsharded_head_share at t = 1
///   send    = 4·M·h/t / rate, both directions, 2 bytes each                     [p > 1]
///             rate = tensor_bandwidth where the run fits a node, else N / min(t·d, G)
///   reduce  = reduce_seconds + 2 bytes · 2(d−1)/d · W / rate                    [d > 1], W = (12·h²·L/p + V·h)/t
///             rate = reduce_bandwidth, but N / min(t, G) at most where t·d > G
///   update  = step_seconds + update_bytes · W / (memory_share · B)
/// Sequence parallelism divides the replicated elements by t; its all-gathers and reduce-scatters move an all-reduce's
/// bytes.
///
/// N = node_bandwidth is shared by the G ranks of a node. Ranks are ordered tensor, data, pipeline (Megatron-LM,
/// parallel_state.py), so that the replicas' all-reduces of a node's min(t, G) shards are out at once, each one ring in
/// and out of the node; a tensor group of more than G ranks is one such ring and has N to itself; the min(t·d, G) ranks
/// of a stage in a node send at once, each its 1/t of the activations (Narayanan et al. 2021, sec. 4.1).
///
/// Sources: GEMM and memory terms are a roofline by operator as in Calculon (Isaev et al. 2023) and vTrain (Bang et al.
/// 2024); tiles and waves: NVIDIA, Matrix Multiplication Background User's Guide; slots of 1F1B:
/// Narayanan et al. 2021, sec. 2.2; all-reduces and passes: Korthikanti et al. 2022, sec. 4 and 5.
/// @param cluster has transformer_costs and is verified. @param run is verified.
/// @throws UserError where the cluster has no transformer_costs.
IterationEstimate transformer_iteration(const TransformerRun& run, const Cluster& cluster);

/// Bytes that one layer keeps of one micro-batch for its backward pass, at 2 bytes an element and 1 a dropout mask, on
/// one rank. Korthikanti et al. 2022, eqs. 1 to 6 and table 2: without parallelism s·b·h·(34 + 5·a·s/h); t ranks
/// s·b·h·(10 + 24/t + 5·a·s/(h·t)); with sequence parallelism everything over t; selective recomputation without the
/// term of the scores; full: the layer's input alone, 2·s·b·h (over t with sequence parallelism, which keeps a shard).
double layer_activation_bytes(const TransformerRun& run);

/// Of a rank of the first stage under 1F1B, which keeps p micro-batches of L/p layers: L layers, times 1 + (p−1)/(p·v)
/// where stages are interleaved (v > 1). The embedding's dropout is left out. Korthikanti et al. 2022, sec. 4.2.3.
double first_stage_activation_bytes(const TransformerRun& run);

}  // namespace strata
