#pragma once

/// @file
/// A plan of layouts → the same with sub-batches that take turns, and what Oases computes again.

#include <vector>

#include "planners/planner.hpp"

namespace strata {

/// @param request with the options sub_batches, cross_pass and fine_recompute. @param keeps by operator of the
/// request's graph: nothing of it is computed again; empty: of none. Where that holds of all, there is one pass, and
/// nothing to cross.
/// @throws Unsupported where passes are to be crossed of which there is one, or of one sub-batch.
Plan in_turns(const PlanRequest& request, Plan plan, const std::vector<bool>& keeps, int sub_batches);

}  // namespace strata
