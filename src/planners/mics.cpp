/// @file
/// MiCS: all states are sharded in a subgroup of ranks and replicated across subgroups.
///
/// Source:     Zhang et al., "MiCS: Near-linear Scaling for Training Gigantic Model on Public Cloud", VLDB 2022.
/// Idea:       gathers stay among few, near ranks; only summed gradients cross subgroups, once a step.
/// Symbols:    N ranks, S of a subgroup, M micro-batches, P parameters (elements), c and g bytes of a parameter and a
///             gradient element.
/// Decides:    mesh axes {data = N}; p = g = os = `group`; states cut evenly; a recomputed block gathers again.
/// Memory:     states a rank: (c + g + 12) P/S bytes with bf16 Adam, 16 P/S with f32, P/S rounded up a tensor; and
///             what `zero3` has while a layer is computed.
/// Volume:     a rank and step: (S-1)/S M (2 cP + gP) in its subgroup, one more cP where blocks are recomputed; 2
///             (N/S-1)/(N/S) gP/S across subgroups; 2 (N-1)/N · 4 for the loss.
/// Reference:  `ddp`.
/// Options:    group, placement, overlap; overlap = deepspeed also keeps the all-reduce out of backward.
/// Refuses:    a subgroup that does not divide the ranks in both dimensions, or takes a part of several nodes; a
///             batch that the micro-batches do not divide.
/// Differs:    collectives inside a subgroup of several nodes are not staged (MiCS stages all-gathers);
///             tensors are cut one by one.
/// Reproduces: the MiCS lines of AMSP.

#include <array>

#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

class Mics final : public Planner {
 public:
  std::string_view name() const override { return "mics"; }
  std::string_view summary() const override { return "all states sharded in a subgroup, replicated across subgroups"; }
  std::string_view source() const override { return "Zhang et al., MiCS, VLDB 2022"; }
  std::span<const OptionRow> options() const override {
    static const std::array rows = {
        OptionRow{"group", std::string("node"), "",
                  "ranks of a subgroup: node (all ranks of a node), or ranks in a node x nodes as in \"8x2\""},
        placement_option(),
        overlap_option(),
    };
    return rows;
  }
  Plan plan(const PlanRequest& request) const override {
    const Factor group = node_or_factor(request, "group");
    Plan plan = sharded_plan(request, {.p = group, .g = group, .os = group});
    // DeepSpeed's MiCS waits for its all-reduces too: AMSP sec. VI-C.
    if (request.option<std::string>("overlap") == "deepspeed") plan.overlap.all_reduce = "none";
    place_nodes(plan, request);
    return plan;
  }
};

}  // namespace

const Planner& mics_planner() {
  static const Mics planner;
  return planner;
}

}  // namespace strata
