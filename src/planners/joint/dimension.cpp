#include "planners/joint/dimension.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "planners/joint/decision_rules.hpp"

namespace strata {
namespace {

bool shares_products(const OperatorRule& rule) {
  return rule.layout && rule.layout->p1.total() * rule.layout->p2.total() > 1;
}

void hold_states_as(const Plan& base, Plan& plan) {
  for (OperatorRule& rule : plan.operators) rule.state.reset();
  plan.optimizer = base.optimizer;
}

void recompute_as(const Plan& base, Plan& plan) {
  for (OperatorRule& rule : plan.operators) rule.recompute.reset();
  plan.recompute = base.recompute;
  if (plan.recompute == Recompute::none) plan.schedule.cross_pass = false;
}

}  // namespace

std::string_view to_string(Dimension dimension) {
  switch (dimension) {
    case Dimension::stages: return "stages";
    case Dimension::tensor: return "tensor";
    case Dimension::states: return "states";
    case Dimension::slices: return "slices";
    case Dimension::recompute: return "recompute";
    case Dimension::sub_batches: return "sub_batches";
    case Dimension::overlap: return "overlap";
    case Dimension::placement: return "placement";
  }
  return "?";
}

Dimensions::Dimensions(std::string_view without) {
  const std::string_view all = without;
  if (without == "none") return;
  while (true) {
    const std::size_t comma = without.find(',');
    const std::string_view word = without.substr(0, comma);
    const auto named = std::ranges::find(all_dimensions, word, [](Dimension d) { return to_string(d); });
    if (named == all_dimensions.end()) {
      std::string names;
      for (const Dimension d : all_dimensions) names += fmt::format(", {}", to_string(d));
      throw UserError(
          fmt::format("strategy.without = \"{}\": no dimension `{}`; accepted: none{}, or several with "
                      "commas between them",
                      all, word, names));
    }
    left_out_.set(static_cast<std::size_t>(*named));
    if (comma == std::string_view::npos) return;
    without.remove_prefix(comma + 1);
  }
}

std::optional<Plan> Dimensions::within(Plan plan, const Plan& base) const {
  if (!has(Dimension::stages) && plan.stages.count > 1) return std::nullopt;
  if (!has(Dimension::tensor) && std::ranges::any_of(plan.operators, shares_products)) return std::nullopt;
  plan.quantization = base.quantization;
  if (!has(Dimension::states)) hold_states_as(base, plan);
  if (!has(Dimension::slices)) {
    for (OperatorRule& rule : plan.operators) {
      rule.slices.reset();
      rule.slice_state.clear();
    }
  }
  if (!has(Dimension::recompute)) recompute_as(base, plan);
  if (!has(Dimension::sub_batches)) {
    plan.schedule.sub_batches = base.schedule.sub_batches;
    plan.schedule.cross_pass = base.schedule.cross_pass;
  }
  if (!has(Dimension::overlap)) plan.overlap = base.overlap;
  if (!has(Dimension::placement) && plan.mesh.placement == "leaf-first") {
    plan.mesh.placement = base.mesh.placement;
    plan.mesh.node_order = base.mesh.node_order;
  }
  std::erase_if(plan.operators, is_empty);
  return plan;
}

}  // namespace strata
