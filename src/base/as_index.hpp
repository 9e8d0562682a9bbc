#pragma once

/// @file
/// Ids of values are int, because -1 says none; places in a vector are not.

#include <cstddef>

namespace strata {

/// @param id at least 0.
constexpr std::size_t as_index(int id) { return static_cast<std::size_t>(id); }

}  // namespace strata
