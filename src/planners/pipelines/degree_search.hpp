#pragma once

/// @file
/// The degrees with the fastest simulated step of those that fit: every combination has a bound in closed form
/// (step_bound.hpp), and in the order of these the simulator is asked, until no bound is below the best answer. So the
/// result is that of asking it of every combination.

#include <cstdint>
#include <string>
#include <vector>

#include "planners/pipelines/degrees.hpp"

namespace strata {

/// What the options leave open (asked_degrees()), or the one combination that they do not. Of equal seconds the one
/// that is smaller.
/// @throws Unsupported where none can be: what the first refuses. OutOfMemory where none fits: what those that need
/// least need. CostsUnknown where there are several and nobody simulates.
Plan fastest_degrees(const PlanRequest& request);

}  // namespace strata
