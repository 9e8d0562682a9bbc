#pragma once

/// @file
/// One way of holding states for each unit, as the rules of a plan: neighbouring blocks that agree share a rule.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"
#include "planners/operators/choices.hpp"

namespace strata {

/// Rules for resolve(): "*" is replicated, then what is not. @param choices by unit of @p operators, as indices.
std::vector<OperatorRule> rules_of(const OperatorChoices& operators, const ModelGraph& graph, const Factor& all_ranks,
                                   std::span<const int> choices);

}  // namespace strata
