#pragma once

/// @file
/// An attempt that ended before its ranks had a Program: refused by a planner, or started by the wrong launcher. It is
/// a point with a reason like any other.

#include <string>

#include "base/environment.hpp"
#include "config/sweep.hpp"
#include "results/outcome.hpp"
#include "run/run_point.hpp"

namespace strata::run {

/// Rank 0 of the launch only. @throws UserError if the results cannot be written.
void record_unstarted(const Environment& environment, const Point& point, int num_ranks,
                      const results::Outcome& outcome, const RunOptions& options);

}  // namespace strata::run
