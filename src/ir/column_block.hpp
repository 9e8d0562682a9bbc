#pragma once

/// @file
/// Some columns of a matrix, held as a matrix of its own, row by row: what an operator's slice has of a parameter.

#include <algorithm>
#include <cstdint>

namespace strata {

struct ColumnBlock {
  std::int64_t first = 0;  ///< column of the whole
  std::int64_t size = 0;   ///< columns; 0: there is no cut, the block is the whole
  std::int64_t row = 0;    ///< columns of the whole
  bool operator==(const ColumnBlock&) const = default;

  bool is_whole() const { return size == 0; }
  /// Where element @p i of the block stands in the whole, both flattened.
  std::int64_t in_whole(std::int64_t i) const { return is_whole() ? i : i / size * row + first + i % size; }

  /// Elements [begin, begin + num_elements) of the block as runs of neighbours in the whole:
  /// body(element of the whole, element counted from begin, count).
  template <typename Body>
  void for_runs(std::int64_t begin, std::int64_t num_elements, const Body& body) const {
    for (std::int64_t i = 0; i < num_elements;) {
      const std::int64_t rest = num_elements - i;
      const std::int64_t count = is_whole() ? rest : std::min(rest, size - (begin + i) % size);
      body(in_whole(begin + i), i, count);
      i += count;
    }
  }
};

}  // namespace strata
