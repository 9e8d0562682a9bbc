#pragma once

/// @file
/// Strategies drawn at random, each layer's layout for itself. Source: AutoDDL sec. 4.6.

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "planners/layouts/layout_problem.hpp"

namespace strata {

/// Numbers in order from one stream.
class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view purpose) : stream_{seed, stream_of(purpose)} {}
  /// From 0 … @p count - 1.
  std::size_t below(std::size_t count) { return (std::uint64_t{stream_.word(next_++)} * count) >> 32U; }
  /// In [0, 1).
  double uniform() { return stream_.uniform(next_++); }
  std::vector<int> strategy(const LayoutProblem& problem);

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

SearchAnswer search_at_random(const LayoutProblem& problem, std::int64_t proposals, std::uint64_t seed);

}  // namespace strata
