#pragma once

/// @file
/// A tensor's elements in another order of its dims.

#include <cstdint>
#include <vector>

#include "ir/model/strided_block.hpp"

namespace strata {

/// Dims of a source, the outermost first, and where each stands in the result: `order[i]` is the source's dim. Of a dim
/// that is not in the result one index is taken.
struct Permutation {
  std::vector<std::int64_t> sizes;
  std::vector<int> order;
  std::int64_t first = 0;  ///< element of the source at which the result begins
  bool is_identity() const;
  Permutation inverse() const;
  /// Where the result's elements stand in the source.
  StridedBlock block() const;
};

}  // namespace strata
