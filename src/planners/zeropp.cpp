/// @file
/// ZeRO++: ZeRO-3 whose backward gathers parameters from a second shard that is near, and whose weights and gradients
/// travel quantised where that is asked for.
///
/// Source:     Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", 2023
///             (arXiv 2306.10209), hpZ, qwZ and qgZ; AMSP sec. III-B and table IV.
/// Idea:       what forward gathered over all ranks is kept as a second shard among the ranks of a node, so that
///             backward gathers inside the node (hpZ). Weights are gathered as blocks of int8 codes (qwZ), gradients
///             are summed as blocks of int4 codes by all-to-alls, in the node first, then across nodes (qgZ).
/// Symbols:    N ranks, R of a node, K nodes, S of the secondary group, M micro-batches, P parameters (elements), B of
///             them in tensors that backward reads (weights of products and norms: no biases and no embeddings; where
///             blocks are recomputed also what runs again reads), c and g bytes of a parameter and a gradient element;
///             q(n) = 4 ⌈n/b⌉ + n bits/8 bytes of n packed elements in blocks of b, up to the next multiple of 4.
/// Decides:    mesh axes {data = N}; p = g = os = all ranks, p_backward = `secondary`; states cut evenly; a recomputed
///             block gathers again, from the second shard.
/// Memory:     states a rank: (c + g + 12) P/N + cB/S bytes with bf16 Adam, 16 P/N + 4B/S with f32; the second shards
///             from a step's first forward on; and what `zero3` has while a layer is computed, without the weights that
///             backward reads where S = 1. Quantised: N q(⌈n/N⌉) bytes more for a tensor of n elements on its way, and
///             for a gradient twice that, then 4 K ⌈n/N⌉ + 2 K q(⌈n/N⌉) for the hop across nodes.
/// Volume:     a rank and step: (N-1)/N M (cP + gP) over all ranks, (S-1)/S M cB in the secondary group, and as much
///             for what blocks that are recomputed read; 2 (N-1)/N · 4 for the loss. Quantised weights: M (N-1)
///             Σ q(⌈n/N⌉) for cP; gradients: M ((R-1) K + (K-1)) Σ q(⌈n/N⌉) for gP, of which (K-1) cross nodes.
/// Reference:  `ddp`. Quantised: == where weights are codes of their blocks; else each weight within half a step,
///             max|block|/254, of ddp's, and each rank's part of a gradient within max|block|/14 (int4) or /254 a hop.
/// Options:    secondary, quantized_weights, quantized_gradients, quantization_block, placement, overlap.
/// Refuses:    a secondary group that does not divide the ranks in both dimensions, or takes a part of several nodes;
///             quantisation on one rank; micro-batches that do not divide the batch.
/// Differs:    blocks are symmetric, rounded to nearest, with f32 magnitudes, and packed tensor by tensor, biases and
///             norms too. Of one node or one rank a node, one hop is all there is. The partial sum of a node is a
///             buffer, not registers of a fused kernel. The second shard holds what came out of the codes, so that
///             backward reads the weights that forward read, and only what backward or a recomputation reads
///             (B), not all P as hpZ does. AMSP compares without quantisation: so is the default.
/// Reproduces: the ZeRO++ lines of AMSP.

#include <fmt/format.h>

#include <array>
#include <limits>

#include "base/error.hpp"
#include "ir/plan/plan_words.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

Quantization quantization(const PlanRequest& request) {
  const auto word = [&](const char* name) { return request.option<std::string>(name); };
  const std::int64_t block = request.option<std::int64_t>("quantization_block");
  if (block < 16 || block % 16 != 0 || block > std::numeric_limits<int>::max()) {
    throw UserError(fmt::format("strategy.quantization_block = {}: accepted: multiples of 16, from 16", block));
  }
  const Quantization asked{word("quantized_weights"), word("quantized_gradients"), static_cast<int>(block)};
  if (asked.any() && request.base.mesh.num_ranks() == 1) {
    throw Unsupported(fmt::format(
        "zeropp on 1 rank: quantized_weights = {}, quantized_gradients = {}: with fewer than 2 ranks nothing "
        "travels that could be quantised",
        asked.weights, asked.gradients));
  }
  return asked;
}

class ZeroPlusPlus final : public Planner {
 public:
  std::string_view name() const override { return "zeropp"; }
  std::string_view summary() const override {
    return "zero3 with a second parameter shard inside a subgroup for backward, quantised on request (ZeRO++)";
  }
  std::string_view source() const override { return "Wang et al., ZeRO++, 2023"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"secondary", std::string("node"), "",
                  "ranks that share a second parameter shard: node (all ranks of a node), or ranks in a node x nodes"},
        OptionRow{"quantized_weights", std::string("none"), plan_words::quantized_weights,
                  "what weights are gathered as: as they are, or as blocks of int8 codes (qwZ)"},
        OptionRow{"quantized_gradients", std::string("none"), plan_words::quantized_gradients,
                  "what gradients are summed as: as they are, or as blocks of codes by all-to-alls (qgZ: int4)"},
        OptionRow{"quantization_block", std::int64_t{256}, "a multiple of 16", "numbers that share a magnitude"},
        placement_option(),
        overlap_option(),
    };
    return rows;
  }
  Plan plan(const PlanRequest& request) const override {
    const Factor all = whole_grid(request.base.mesh);
    const Factor secondary = node_or_factor(request, "secondary");
    Plan plan = sharded_plan(request, {.p = all, .g = all, .os = all});
    // The rules of a factor alone are those of a state that has it everywhere.
    set_state(plan, {.p = secondary, .g = secondary, .os = secondary});
    set_state(plan, {.p = all, .g = all, .os = all, .p_backward = secondary});
    plan.quantization = quantization(request);
    place_nodes(plan, request);
    return plan;
  }
};

}  // namespace

const Planner& zeropp_planner() {
  static const ZeroPlusPlus planner;
  return planner;
}

}  // namespace strata
