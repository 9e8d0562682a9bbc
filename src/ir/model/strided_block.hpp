#pragma once

/// @file
/// Some elements of a tensor, held as a tensor of its own: the columns that an operator's slice has of a matrix, or
/// what a tensor layout leaves of a parameter on one rank.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/model/column_block.hpp"

namespace strata {

/// Runs of neighbours at regular distances. Elements of the block are in the order in which the whole has them.
struct StridedBlock {
  std::int64_t first = 0;  ///< element of the whole, flattened
  std::int64_t run = 0;    ///< neighbours that stand together; 0: nothing is cut, the block is the whole
  /// How runs repeat, the innermost repetition first. The outermost has no end of its own.
  struct Level {
    std::int64_t count = 0;
    std::int64_t stride = 0;  ///< elements of the whole from one to the next
    bool operator==(const Level&) const = default;
  };
  std::vector<Level> levels{};
  bool operator==(const StridedBlock&) const = default;

  bool is_whole() const { return run == 0; }

  /// Where element @p i of the block stands in the whole.
  std::int64_t in_whole(std::int64_t i) const {
    if (is_whole()) return i;
    std::int64_t at = first + i % run, repetition = i / run;
    for (std::size_t l = 0; l < levels.size(); ++l) {
      const bool is_outermost = l + 1 == levels.size();
      at += (is_outermost ? repetition : repetition % levels[l].count) * levels[l].stride;
      repetition /= levels[l].count;
    }
    return at;
  }

  /// Elements [begin, begin + num_elements) of the block as runs of neighbours in the whole:
  /// body(element of the whole, element counted from begin, count).
  template <typename Body>
  void for_runs(std::int64_t begin, std::int64_t num_elements, const Body& body) const {
    for (std::int64_t i = 0; i < num_elements;) {
      const std::int64_t rest = num_elements - i;
      const std::int64_t count = is_whole() || levels.empty() ? rest : std::min(rest, run - (begin + i) % run);
      body(in_whole(begin + i), i, count);
      i += count;
    }
  }
};

/// Columns of a matrix of whatever number of rows.
inline StridedBlock strided(const ColumnBlock& columns) {
  return {.first = columns.first, .run = columns.size, .levels = {{1, columns.row}}};
}

/// A dim of a tensor, or one of the factors into which a dim is cut.
struct Digit {
  std::int64_t size = 1;
  std::int64_t index = -1;  ///< the one that is held; -1: all of them
};

/// What is held of a tensor whose dims are @p digits, the outermost first. Of a tensor of which everything is held: the
/// whole.
StridedBlock block_of(std::span<const Digit> digits);

}  // namespace strata
