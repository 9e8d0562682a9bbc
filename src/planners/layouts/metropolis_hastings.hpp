#pragma once

/// @file
/// A walk that prefers cheap strategies: P(S) ∝ exp(-cost(S) / (T · cost of the first)), one layer's layout changed a
/// proposal, accepted with probability min(1, P(new) / P(old)). Dividing by the first cost makes the temperature T a
/// number without unit; the paper gives none. Source: AutoDDL sec. 4.6.1.

#include <cstdint>

#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// @param temperature > 0. @param proposals the first strategy included.
SearchAnswer search_metropolis_hastings(const LayoutProblem& problem, double temperature, std::int64_t proposals,
                                        std::uint64_t seed);

}  // namespace strata
