#pragma once

/// @file
/// What `osdp` and `osdp-base` share: their options, and the way from a request to a plan.

#include <span>

#include "planners/operators/choices.hpp"
#include "planners/operators/fitting.hpp"
#include "planners/planner.hpp"

namespace strata {

/// Parts of a linear's weight where nobody says otherwise, as many as the paper's.
inline constexpr int default_slices = 4;

/// Options of both; those about slices are `osdp`'s alone.
std::span<const OptionRow> operator_options(bool with_slices);
/// Those of them that are about the search of one plan's states.
std::span<const OptionRow> operator_search_options();

/// The plan with the fewest seconds, or, where the batch is the planner's (base.global_batch = 0), the fewest seconds a
/// sample. What the closed form of memory misses is made good by the Program's account, and what its seconds miss,
/// overlap above all, by evaluating what was found beside the same without slices, all ZDP and all DP, where the
/// request has an evaluation and `choice` is not "search". @throws OutOfMemory where nothing fits: which limit, how
/// much is missing, what would fit.
Plan plan_by_operator(const PlanRequest& request);

/// What the options of a request say; without an option `slices` nothing is cut.
ChoiceOptions choice_options(const PlanRequest& request);
FittingOptions fitting_options(const PlanRequest& request);

}  // namespace strata
