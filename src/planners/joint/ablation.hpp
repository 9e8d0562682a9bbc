#pragma once

/// @file
/// What each dimension of `auto` is worth where all others are there. A paper tells what its idea gains over a
/// baseline, which mostly lacks the ideas of the others too.

#include <string>
#include <vector>

#include "planners/planner.hpp"

namespace strata {

/// What the search of @p request finds without each dimension that it has, one at a time, in the order of
/// all_dimensions: "<dimension>: <seconds> s, <memory> GiB, <share> times as long: <the plan in words>", as long as a
/// step of @p best, which it finds with them, by the sample; or "<dimension>: <why there is none>". Below 1 where a
/// dimension leads the search, which decides one thing after another, to a plan that is worse than one without it.
/// Nothing where no step of @p best is predicted, as on one rank, where there is nothing to compare.
std::vector<std::string> found_without_each_dimension(const PlanRequest& request, const Plan& best);

}  // namespace strata
