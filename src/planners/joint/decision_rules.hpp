#pragma once

/// @file
/// One decision an operator, as the rules of a plan: what resolve() reads from rules, written back as few of them.

#include <span>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Rules by which resolve() gives @p decisions again, of operators with parameters all of it and of others what is
/// recomputed: "*" says how most hold their states, then those that differ, neighbouring blocks that agree together.
/// @param recompute the plan's own, which no rule repeats.
std::vector<OperatorRule> rules_of_decisions(const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                                             Recompute recompute);

/// It says nothing of what it matches.
bool is_empty(const OperatorRule& rule);

}  // namespace strata
