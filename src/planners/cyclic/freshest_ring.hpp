#pragma once

/// @file
/// The freshest table of cyclic data parallelism on a rank a micro-batch, and the cut that it goes with: of all tables
/// and cuts those of the least period, or of a period within a factor of it, and of these one with the most fresh
/// reads.
///
/// How long a step takes is the maximum cycle ratio of its events (ring_period). Two things make the search small:
/// - Parameters of one more stage only add waits to the graph: with some stages known, its ratio bounds that of every
///   table that agrees on these. A table is put together stage by stage, and given up where the ratio is too large.
/// - Closed forms of some cycles (ring_bounds) bound what a cut can reach, before any graph is made: cuts are looked at
///   in the order of their bounds, until nothing better can follow.
/// Up to four micro-batches all columns of a stage are tried. With more, or too many cuts, columns are those whose last
/// micro-batches are fresh, stages are cut by the closed form, as strictly as it takes that the period holds, and what
/// the bounds leave open is said. Where they leave nothing open the answer is exact however it was found.

#include <optional>

#include "planners/cyclic/ring_problem.hpp"

namespace strata {

struct FreshestRing {
  RingChoice best{};
  std::optional<RingChoice> runner_up{};  ///< the best of the others that were looked at
  double least_period_seconds = 0.0;      ///< of all that were looked at; best may be `within` times as long
  double period_bound_seconds = 0.0;      ///< no cut and table has a shorter one
  int fresh_bound = 0;                    ///< none within the limit has more fresh reads
  int num_periods = 0;                    ///< that were looked at
  bool is_exact() const {
    return least_period_seconds <= period_bound_seconds * (1.0 + relative_error) && best.num_fresh >= fresh_bound;
  }
  static constexpr double relative_error = 1e-9;  ///< periods that differ by less are equal
};

FreshestRing freshest_ring(const RingProblem& problem);

}  // namespace strata
