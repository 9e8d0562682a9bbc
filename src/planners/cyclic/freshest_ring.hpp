#pragma once

/// @file
/// The freshest table of cyclic data parallelism on a rank a micro-batch, and the cut that it goes with: of all tables
/// and cuts those of the least period, or of a period within a factor of it, and of these one with the most fresh
/// reads.
///
/// How long a step takes is the maximum cycle ratio of its events (ring_period). Closed forms of some cycles
/// (ring_bounds) bound what a cut can reach before any graph is made, and give cuts and tables to begin with: columns
/// whose last micro-batches are fresh, stages cut by the closed form, as strictly as it takes that the period holds.
/// Where these meet the bounds, they are the answer.
///
/// Else, with up to four micro-batches, all cuts and tables are searched (exact_ring): to the end with up to four
/// stages too, so that the answer is exact, and with more stages until so many waits have been looked at, a number that
/// does not depend on the machine. With more micro-batches what the bounds leave open is said.

#include <cstdint>
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
  std::int64_t num_waits = 0;  ///< of tables, or of parts of them, with many cuts at once: as often were they looked at
  bool is_exact() const {
    return least_period_seconds <= period_bound_seconds * (1.0 + relative_error) && best.num_fresh >= fresh_bound;
  }
  static constexpr double relative_error = 1e-9;  ///< periods that differ by less are equal
};

FreshestRing freshest_ring(const RingProblem& problem);

}  // namespace strata
