#pragma once

/// @file
/// What a plan may ask for and this lowering cannot do yet, each by name.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// @param graph whose operators @p decisions are of. @throws Unsupported, as all of this file.
void refuse_what_is_missing(const Plan& plan, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions);

/// Everything that travels between the ranks that share a parameter is quantised, or the plan is not lowered: its name
/// would promise more than it does.
void refuse_what_is_not_quantized(const Plan& plan, const ModelGraph& graph,
                                  const std::vector<OperatorDecision>& decisions);

/// Gradients are summed a micro-batch after the other, so a rank takes all segments of a stage in turn, forward or
/// backward, before it turns to another micro-batch, and updates its parameters last. @param place in the pipeline.
void refuse_orders_without_whole_passes(const Plan& plan, const StepOrder& order, int place);

}  // namespace strata
