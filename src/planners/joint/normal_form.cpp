#include "planners/joint/normal_form.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "planners/joint/decision_rules.hpp"
#include "planners/joint/moves.hpp"

namespace strata {
namespace {

/// What ranks hold parts of, by any operator.
struct HeldInParts {
  bool parameters = false, states = false;
  bool updates_less = false;  ///< a rank updates a part of what it holds, and gets the others
};

HeldInParts held_in_parts(const std::vector<OperatorDecision>& decisions) {
  HeldInParts held;
  for (const OperatorDecision& d : decisions) {
    const bool is_sliced = d.slices > 0;  // each slice says for itself
    held.parameters |= is_sliced || d.state.p.total() > 1 || d.state.p_backward.has_value();
    held.states |= is_sliced || d.state != StateFactors{};
    held.updates_less |= is_sliced || d.state.os != d.state.p;
  }
  return held;
}

}  // namespace

Plan in_normal_form(Plan plan, const ModelGraph& graph) {
  HeldInParts held;
  try {
    held = held_in_parts(resolve(plan, graph));
  } catch (const UserError&) {
    return plan;
  }
  const Plan empty;
  if (!held.parameters) {
    plan.overlap.gather = empty.overlap.gather;
    plan.overlap.gather_backward = empty.overlap.gather_backward;
    plan.overlap.reduce_scatter = empty.overlap.reduce_scatter;
  }
  if (!held.parameters || !runs_again(plan)) plan.gathered_after_recompute = empty.gathered_after_recompute;
  if (!held.updates_less) {
    plan.optimizer.gradients = empty.optimizer.gradients;
    plan.overlap.spread_bytes = empty.overlap.spread_bytes;
  }
  if (!held.states) {
    plan.optimizer.sharding = empty.optimizer.sharding;
    plan.optimizer.spread = empty.optimizer.spread;
    for (OperatorRule& rule : plan.operators) rule.state.reset();
    std::erase_if(plan.operators, is_empty);
  }
  return plan;
}

}  // namespace strata
