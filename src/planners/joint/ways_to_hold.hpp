#pragma once

/// @file
/// Where a plan does not fit: the ways to hold its states, each with as few blocks run again as make it fit. Both trade
/// time for memory, and neither alone may be enough.

#include "base/infinity.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/planner.hpp"

namespace strata {

struct WaysToHold {
  bool fit = false;
  bool need_recompute = false;  ///< none fits without
  double seconds = infinity;    ///< of the fastest of those that were asked and fit
};

/// States and recomputation are both decided.
bool trades_time_for_memory(const Dimensions& dimensions);

/// Asks for @p plain, and where it does not fit for every way to hold its states with every way to recompute.
WaysToHold ways_to_hold(const PlanRequest& request, const Dimensions& dimensions, KnownPlans& known, const Plan& plain);

}  // namespace strata
