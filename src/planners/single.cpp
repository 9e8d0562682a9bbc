/// @file
/// One rank, no communication: what every other synchronous mode must equal.
///
/// Source:     the definition of the training step.
/// Idea:       the whole global batch on one rank, in micro-batches where asked.
/// Symbols:    P parameters (elements).
/// Decides:    mesh axes {data = 1}.
/// Memory:     states: fp32 Adam 16P bytes; bf16 Adam 2P + gP + 12P, g bytes of a gradient element.
/// Volume:     0.
/// Reference:  float64 references of every operator.
/// Options:    none.
/// Refuses:    more than one rank; micro-batches that do not divide the batch.
/// Differs:    nothing to differ from.
/// Reproduces: the one-device baselines.

#include <fmt/core.h>

#include "base/error.hpp"
#include "planners/even_micro_batches.hpp"
#include "planners/planner.hpp"

namespace strata {
namespace {

class Single final : public Planner {
 public:
  std::string_view name() const override { return "single"; }
  std::string_view summary() const override {
    return "one rank without communication: the reference of all other modes";
  }
  std::string_view source() const override { return "reference"; }
  std::span<const OptionRow> options() const override { return {}; }

  Plan plan(const PlanRequest& request) const override {
    if (request.base.mesh.num_ranks() != 1) {
      throw Unsupported(fmt::format("single: runs on one rank, {} nodes × {} ranks a node are {}",
                                    request.base.mesh.nodes, request.base.mesh.ranks_per_node,
                                    request.base.mesh.num_ranks()));
    }
    Plan plan = request.base;
    plan.mesh.axes = {{"data", 1}};
    refuse_uneven_micro_batches(plan);
    return plan;
  }
};

}  // namespace

const Planner& single_planner() {
  static const Single planner;
  return planner;
}

}  // namespace strata
