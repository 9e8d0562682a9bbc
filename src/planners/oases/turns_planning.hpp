#pragma once

/// @file
/// The engine of Oases and of the modes that it is compared with: degrees of tensor parallelism, one for all layers or
/// one for each attention and MLP by the chain (chain.hpp), and sub-batches that take turns. Of the plans that fit the
/// simulator chooses the fastest.

#include <map>
#include <string>

#include "planners/planner.hpp"

namespace strata {

/// @p request with options of `oases` that its mode does not declare, at the values that the mode means.
PlanRequest with_options(PlanRequest request, const std::map<std::string, OptionValue>& others);

/// @param request with all options of `oases`.
/// @throws what `oases` refuses, see planners/oases.cpp.
Plan plan_in_turns(const PlanRequest& request);

/// What plan_in_turns() searches, in free MPS. @throws Unsupported where degrees are not planned by the chain.
std::string linear_program_in_turns(const PlanRequest& request);

}  // namespace strata
