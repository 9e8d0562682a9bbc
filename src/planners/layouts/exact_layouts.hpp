#pragma once

/// @file
/// The cheapest strategy within a capacity. Without one, or where the cheapest fits it, dynamic programming has it.
/// Where it does not, bytes get a price (Lagrange) at which the cheapest fits, the price that leaves least to spare;
/// layers then take better layouts one by one as long as all fit; and from there on branch and bound finds the cheapest
/// that fits and proves it. Of very many layers that all choose for themselves it may not come to an end: then the
/// lower bound that comes with the price says how far from the optimum the answer can be.

#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// @return without choices where even the strategy of fewest bytes exceeds the capacity.
SearchAnswer search_exactly(const LayoutProblem& problem);

/// The strategy of fewest bytes; empty where every one costs infinity.
std::vector<int> smallest(const LayoutProblem& problem);

}  // namespace strata
