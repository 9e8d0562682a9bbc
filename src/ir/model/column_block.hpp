#pragma once

/// @file
/// Neighbouring columns of a matrix or of an activation's rows.

#include <cstdint>

namespace strata {

struct ColumnBlock {
  std::int64_t first = 0;  ///< column of the whole
  std::int64_t size = 0;   ///< columns
  std::int64_t row = 0;    ///< columns of the whole
  bool operator==(const ColumnBlock&) const = default;
};

}  // namespace strata
