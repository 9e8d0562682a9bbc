#include "lower/layouts/layout_collectives.hpp"

#include <cstddef>

#include "lower/layouts/layout_axes.hpp"

namespace strata {
namespace {

/// Ranks that share the features of a row exchange what the operator needs of all of it.
bool exchanges_rows(const LaidOutGraph& model, const Operator& op) {
  if (model.layouts.empty() || model.layouts[static_cast<std::size_t>(op.inputs.front())].features == 0) return false;
  return op.kind == OperatorKind::layer_norm || op.kind == OperatorKind::rms_norm ||
         op.kind == OperatorKind::cross_entropy;
}

}  // namespace

std::set<AxisSet> communicating_axes(const LaidOutGraph& model) {
  std::set<AxisSet> sets(model.replicas.begin(), model.replicas.end());
  for (const Redistribution& step : model.steps) {
    sets.insert(step.forward.axes);
    sets.insert(step.backward.axes);
  }
  for (const SummaPanels& panels : model.panels) {
    sets.insert(panels.rows);
    sets.insert(panels.columns);
  }
  for (const Operator& op : model.graph.operators) {
    for (const char* key : {"sum_over", "sum_gradient_over"}) {
      if (op.attributes.has(key)) sets.insert(static_cast<AxisSet>(op.attributes.integer(key)));
    }
    if (exchanges_rows(model, op)) sets.insert(model.layouts[static_cast<std::size_t>(op.inputs.front())].features);
  }
  return sets;
}

LayoutCollectives layout_collectives(const LaidOutGraph& model) {
  LayoutCollectives all;
  bool follows_sum_of_one_rank = false;
  for (std::size_t o = 0; o < model.graph.operators.size(); ++o) {
    const Operator& op = model.graph.operators[o];
    const bool is_whole_sum = op.attributes.has("sum_over") || (!model.is_laid_out() && is_product(op) &&
                                                                model.decisions[o].sum == PartialSums::all_reduce);
    bool forward = is_whole_sum;
    bool backward = op.attributes.has("sum_gradient_over") || follows_sum_of_one_rank;
    follows_sum_of_one_rank = is_whole_sum && op.attributes.integer_or("sum_over", 0) == 0;
    if (op.kind == OperatorKind::redistribute) {
      const Redistribution& step = model.steps[static_cast<std::size_t>(op.attributes.integer("step"))];
      forward = step.forward.axes != 0;
      backward = step.backward.axes != 0;
    } else if (op.attributes.has("summa") || op.attributes.has("ring") || exchanges_rows(model, op)) {
      forward = backward = true;
    }
    all.forward.push_back(forward);
    all.backward.push_back(backward);
  }
  return all;
}

}  // namespace strata
