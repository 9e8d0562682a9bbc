#include "planners/oases/turns.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/error.hpp"
#include "planners/operators/block_rules.hpp"
#include "planners/operators/units.hpp"

namespace strata {
namespace {

/// With rules for what is not computed again. @param keeps by operator, or empty.
void keep(const ModelGraph& graph, const std::vector<bool>& keeps, Plan& plan) {
  std::vector<RuleOfBlock> said;
  bool keeps_all = !keeps.empty();
  for (std::size_t o = 0; o < keeps.size(); ++o) {
    const Operator& op = graph.operators[o];
    if (op.block < 0) continue;
    keeps_all = keeps_all && keeps[o];
    if (!keeps[o]) continue;
    said.push_back(
        {block_in_names(graph, op.block), {.match = name_within_block(graph, op), .recompute = Recompute::none}});
  }
  if (keeps_all) {
    plan.recompute = Recompute::none;
    plan.schedule.cross_pass = false;  // there is one pass alone
    return;
  }
  for (OperatorRule& rule : joined_over_blocks(std::move(said))) plan.operators.push_back(std::move(rule));
}

}  // namespace

Plan in_turns(const PlanRequest& request, Plan plan, const std::vector<bool>& keeps, int sub_batches) {
  plan.schedule.sub_batches = sub_batches;
  // Of one sub-batch alone nothing can pass; whoever leaves their number to the planner allows that.
  const bool is_asked_number = request.option<std::int64_t>("sub_batches") > 0;
  plan.schedule.cross_pass = request.option<bool>("cross_pass") && (sub_batches > 1 || is_asked_number);
  if (request.option<bool>("fine_recompute")) plan.recompute = Recompute::after_communication;
  const auto refuse = [&](const std::string& what) {
    throw Unsupported(fmt::format("{} on {} ranks: cross_pass = true with {}", request.base.strategy,
                                  request.base.mesh.num_ranks(), what));
  };
  if (plan.schedule.cross_pass && plan.schedule.sub_batches == 1) {
    refuse("sub_batches = 1: nothing computes under the sums of the other; cross_pass = false, or 2 sub-batches");
  }
  if (plan.schedule.cross_pass && plan.recompute == Recompute::none) {
    refuse(
        "fine_recompute = false and train.recompute = \"none\": there is one pass alone; cross_pass = false, or "
        "something recomputed");
  }
  if (plan.recompute != Recompute::none) keep(request.graph, keeps, plan);
  return plan;
}

}  // namespace strata
