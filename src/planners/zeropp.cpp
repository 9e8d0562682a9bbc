/// @file
/// ZeRO++ without quantisation: ZeRO-3 whose backward gathers parameters from a second shard that is near.
///
/// Source:     Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", 2023
///             (arXiv 2306.10209), hpZ; AMSP sec. III-B and table IV.
/// Idea:       what forward gathered over all ranks is kept as a second shard among the ranks of a node, so that
///             backward gathers inside the node.
/// Symbols:    N ranks, S of the secondary group, M micro-batches, P parameters (elements), B of them in tensors that
///             backward reads (weights of products and norms: no biases and no embeddings; where blocks are recomputed
///             also what runs again reads), c and g bytes of a parameter and a gradient element.
/// Decides:    mesh axes {data = N}; p = g = os = all ranks, p_backward = `secondary`; states cut evenly; a recomputed
///             block gathers again, from the second shard.
/// Memory:     states a rank: (c + g + 12) P/N + cB/S bytes with bf16 Adam, 16 P/N + 4B/S with f32; the second shards
///             from a step's first forward on; and what is gathered at a time.
/// Volume:     a rank and step: (N-1)/N M (cP + gP) over all ranks, (S-1)/S M cB in the secondary group, and as much
///             for what blocks that are recomputed read; 2 (N-1)/N · 4 for the loss.
/// Reference:  `ddp`.
/// Options:    secondary, overlap.
/// Refuses:    a secondary group that does not divide the ranks in both dimensions, or takes a part of several nodes;
///             a global batch that N × micro-batches does not divide.
/// Differs:    nothing is quantised (qwZ, qgZ), as in AMSP's comparison.
/// Reproduces: the ZeRO++ lines of AMSP.

#include <array>

#include "planners/sharding/mode.hpp"

namespace strata {
namespace {

class ZeroPlusPlus final : public Planner {
 public:
  std::string_view name() const override { return "zeropp"; }
  std::string_view summary() const override {
    return "zero3 with a second parameter shard inside a subgroup for backward (ZeRO++, not quantised)";
  }
  std::string_view source() const override { return "Wang et al., ZeRO++, 2023"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"secondary", std::string("node"), "",
                  "ranks that share a second parameter shard: node (all ranks of a node), or ranks in a node x nodes"},
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
    return plan;
  }
};

}  // namespace

const Planner& zeropp_planner() {
  static const ZeroPlusPlus planner;
  return planner;
}

}  // namespace strata
