#pragma once

/// @file
/// Where nothing fits: what of that which an experiment holds fixed would make the least plan smaller.

#include <span>
#include <string>

#include "planners/joint/dimension.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/pipelines/degrees.hpp"
#include "planners/planner.hpp"

namespace strata {

/// What each change alone frees of @p least, most first, and whether the plan then fits: twice as many micro-batches,
/// half of the batch, and of each dimension that is left out its best decision. Empty where none frees anything.
/// @param all degrees of the space.
std::string relief_in_words(const PlanRequest& request, const Dimensions& dimensions,
                            std::span<const ParallelDegrees> all, const KnownPlan& least);

}  // namespace strata
