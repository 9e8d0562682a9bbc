#pragma once

/// @file
/// Some elements of a tensor, held as a tensor of its own: the columns that an operator's slice has of a matrix, or
/// what a tensor layout leaves of a parameter on one rank.

#include <algorithm>
#include <cstdint>
#include <limits>
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
    /// Elements of the block from one to the next, where the last run between them is cut short: a row of 5 columns in
    /// runs of 2, say. 0: as many as one repetition of the level inside has.
    std::int64_t period = 0;
    bool operator==(const Level&) const = default;
  };
  std::vector<Level> levels{};
  bool operator==(const StridedBlock&) const = default;

  bool is_whole() const { return run == 0; }

  /// Elements of the block in one repetition of each level.
  std::vector<std::int64_t> periods() const {
    std::vector<std::int64_t> result;
    std::int64_t inside = run;
    for (const Level& level : levels) {
      result.push_back(level.period > 0 ? level.period : inside);
      inside = result.back() * level.count;
    }
    return result;
  }

  /// Where element @p i of the block stands in the whole.
  std::int64_t in_whole(std::int64_t i) const { return is_whole() ? i : place(i, periods()).in_whole; }

  /// Elements [begin, begin + num_elements) of the block as runs of neighbours in the whole:
  /// body(element of the whole, element counted from begin, count).
  template <typename Body>
  void for_runs(std::int64_t begin, std::int64_t num_elements, const Body& body) const {
    const std::vector<std::int64_t> all = periods();
    for (std::int64_t i = 0; i < num_elements;) {
      const Place at = is_whole() ? Place{begin + i, num_elements} : place(begin + i, all);
      const std::int64_t count = std::min(num_elements - i, at.neighbours);
      body(at.in_whole, i, count);
      i += count;
    }
  }

 private:
  struct Place {
    std::int64_t in_whole = 0;
    std::int64_t neighbours = 0;  ///< that stand together from here on, this one included
  };
  Place place(std::int64_t i, std::span<const std::int64_t> all_periods) const {
    Place at{first, std::numeric_limits<std::int64_t>::max()};
    for (std::size_t l = levels.size(); l-- > 0;) {
      at.in_whole += i / all_periods[l] * levels[l].stride;
      i %= all_periods[l];
      at.neighbours = std::min(at.neighbours, all_periods[l] - i);
    }
    if (!levels.empty()) at.neighbours = std::min(at.neighbours, run - i);
    at.in_whole += i;
    return at;
  }
};

/// Columns of a matrix of whatever number of rows.
inline StridedBlock strided(const ColumnBlock& columns) {
  return {.first = columns.first, .run = columns.size, .levels = {{1, columns.row}}};
}

/// One of the factors into which a dim is cut.
struct Digit {
  std::int64_t size = 1;
  std::int64_t index = -1;  ///< the one that is held; -1: all of them
};

/// What is held of a dim: elements whose digits, the outermost first, are those that are held. The dim may end before
/// its digits do, so that the last runs are short or missing.
struct DimPart {
  std::vector<Digit> digits;
  std::int64_t size = 1;   ///< elements of the dim, at most the product of its digits
  std::int64_t count = 1;  ///< of them, those that are held
};
/// @p digits of a dim of @p size elements.
DimPart part_of(std::vector<Digit> digits, std::int64_t size);
/// All of a dim.
inline DimPart all_of(std::int64_t size) { return {{{size, -1}}, size, size}; }

/// What is held of a tensor whose dims are @p dims, the outermost first. Of a tensor of which everything is held: the
/// whole. Of one of which nothing is held: some block, of which nobody asks for an element.
StridedBlock block_of(std::span<const DimPart> dims);
/// Of one dim that its digits fill.
StridedBlock block_of(std::span<const Digit> digits);

}  // namespace strata
