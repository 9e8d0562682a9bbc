#pragma once

/// @file
/// What a plan needs and takes, told from few of the model's blocks, or of the places and micro-batches of its
/// pipeline: quicker than its Programs tell it, and off by little. It says which of many plans need not be asked about.

#include <optional>

#include "planners/evaluate.hpp"
#include "planners/planner.hpp"

namespace strata {

struct ByFewParts {
  Evaluation least{};                   ///< that it needs; of a pipeline in its first place
  std::optional<double> about_seconds;  ///< where that fits; nothing: see Evaluate::seconds_of_few()
};

/// Nothing of a plan that cannot be: it says so where it is asked.
ByFewParts by_few_parts(const PlanRequest& request, const Plan& plan);

/// A plan that takes about @p about_seconds as few of its parts say may be faster than one that takes @p seconds.
bool may_be_faster(double about_seconds, double seconds);

/// By which part of it plans may be faster than few parts say that differ in one decision from a plan that takes
/// @p seconds and about @p about_seconds as few parts say, with all tokens.
double uncertainty_by_few_parts(double about_seconds, double seconds);

}  // namespace strata
