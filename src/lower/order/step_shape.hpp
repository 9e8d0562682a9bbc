#pragma once

/// @file
/// A model that has been cut into stages → what schedules are made for.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "partition/stages.hpp"

namespace strata {

/// Every stage is cut into its blocks, and what stands before the first of them, between two or behind the last.
/// @param decisions by operator of @p graph.
StepShape step_shape(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                     std::span<const Stage> stages);

}  // namespace strata
