#pragma once

/// @file
/// From a random strategy, each layer in turn takes its best layout while the others keep theirs, until none changes;
/// then again from another one. Source: AutoDDL sec. 4.6.2.

#include <cstdint>

#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// @param restarts beginnings, at least one. Every layout tried for a layer is an evaluation.
SearchAnswer search_coordinate_descent(const LayoutProblem& problem, std::int64_t restarts, std::uint64_t seed);

/// From @p choices to where no layer alone can do better within the capacity. @return the cost there.
double descend(const LayoutProblem& problem, std::vector<int>& choices, BestSoFar& best);

}  // namespace strata
