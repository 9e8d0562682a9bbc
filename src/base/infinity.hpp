#pragma once

/// @file
/// Searches for a least cost begin with this infinity.

#include <limits>

namespace strata {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace strata
