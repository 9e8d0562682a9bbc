#pragma once

/// @file
/// Division of counts, rounded up.

#include <cstdint>

namespace strata {

/// @p n ≥ 0 things in parts of at most @p size > 0: how many parts; or over @p size parts: the largest one.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// The least multiple of @p size that is not below @p n ≥ 0.
constexpr std::int64_t round_up(std::int64_t n, std::int64_t size) { return ceil_div(n, size) * size; }

}  // namespace strata
