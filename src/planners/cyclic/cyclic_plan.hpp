#pragma once

/// @file
/// What the modes of cyclic data parallelism share: their options, and the ways to run it on ranks.

#include <span>
#include <string_view>

#include "planners/planner.hpp"

namespace strata {

/// @param fresh the rule that the mode is named after, which its options may change.
std::span<const OptionRow> cyclic_options(std::string_view fresh);

/// @throws Unsupported with the numbers: ranks, micro-batches and stages that the implementation does not bring
/// together, and more stages than blocks.
Plan cyclic_plan(const PlanRequest& request);

}  // namespace strata
