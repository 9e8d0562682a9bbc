#pragma once

/// @file
/// What a plan needs and takes, told from few of the model's blocks, or of the places of its pipeline: quicker than its
/// Programs tell it, and off by little. It says which of many plans need not be asked about.

#include <optional>

#include "planners/evaluate.hpp"
#include "planners/planner.hpp"

namespace strata {

struct ByFewBlocks {
  Evaluation least{};                   ///< that it needs; of a pipeline in its first place
  std::optional<double> about_seconds;  ///< where that fits; nothing: see Evaluate::seconds_of_few_blocks()
};

/// Nothing of a plan that cannot be: it says so where it is asked.
ByFewBlocks by_few_blocks(const PlanRequest& request, const Plan& plan);

/// A plan that takes about @p about_seconds as few of its blocks say may be faster than one that takes @p seconds.
bool may_be_faster(double about_seconds, double seconds);

/// By which part of it plans may be faster than few blocks say that differ in one decision from a plan that takes
/// @p seconds and about @p about_seconds as few blocks say, with all tokens.
double uncertainty_by_few_blocks(double about_seconds, double seconds);

}  // namespace strata
