#pragma once

/// @file
/// Every strategy, one after another. Source: AutoDDL sec. 4.6.

#include <cstdint>

#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// @throws Unsupported where there are more than @p most strategies, naming both numbers.
SearchAnswer search_exhaustively(const LayoutProblem& problem, std::int64_t most);

}  // namespace strata
