#pragma once

/// @file
/// Infinity, for searches of a least cost.

#include <limits>

namespace strata {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace strata
