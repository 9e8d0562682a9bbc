#pragma once

/// @file
/// A plan of other degrees that decides everything else as a given one does, as far as that can be.

#include <span>
#include <vector>

#include "planners/joint/moves.hpp"
#include "planners/pipelines/degrees.hpp"
#include "planners/planner.hpp"

namespace strata {

/// Those of @p plan; of layouts that differ the largest tensor degree.
ParallelDegrees degrees_of(const Plan& plan);

/// A linear that does not both gather its input and scatter its output.
bool may_go_round(const OperatorDecision& d);

/// plan_of_degrees() with the schedule's sub-batches, recomputation, overlap and optimizer of @p plan, and what most of
/// its operators shard, over the copies that there are; of scattered sums, products that went round rings still do.
/// @p plan itself, in other micro-batches, where nothing else differs. Of whole weights there are no sub-batches and no
/// layouts that change. @throws Unsupported as plan_of_degrees().
Plan with_degrees(const PlanRequest& request, const Plan& plan, const ParallelDegrees& degrees);

/// Of @p all those with the tensor degree next to the one of @p plan, up and down, by either kind of sum.
std::vector<Move> moves_to_tensor_degrees(const PlanRequest& request, const Plan& plan,
                                          std::span<const ParallelDegrees> all);

}  // namespace strata
