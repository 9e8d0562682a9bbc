#pragma once

/// @file
/// The cheapest strategy within a capacity. Without one, or where the cheapest fits it, that is exact. Where it does
/// not, bytes get a price (Lagrange) at which the cheapest fits, the price that leaves least to spare; layers then take
/// better layouts one by one as long as all fit, and the lower bound that comes with the price says how far from the
/// optimum that can be.

#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// @return without choices where even the strategy of fewest bytes exceeds the capacity.
SearchAnswer search_exactly(const LayoutProblem& problem);

/// The strategy of fewest bytes; empty where every one costs infinity.
std::vector<int> smallest(const LayoutProblem& problem);

}  // namespace strata
