#pragma once

/// @file
/// What becomes of the points of a sweep, found before any of them is queued: whether a mode has a plan for each,
/// whether it fits, and how long a step takes, as far as this can be known without the ranks.

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "config/sweep.hpp"
#include "results/status.hpp"

namespace strata::predict {

struct PlannedPoint {
  /// ok: it will start; refused, oom: it cannot.
  results::Status status = results::Status::ok;
  /// Of refused and oom. Of ok: why it is planned only where it runs; empty: it is planned.
  std::string reason{};
  double step_seconds = std::numeric_limits<double>::quiet_NaN();  ///< predicted; unknown: nobody knows the costs
  std::int64_t global_batch = 0;                                   ///< samples of such a step
};

/// By point. Points that differ in nothing a plan depends on (seeds, data, what is measured) are planned once. Cluster
/// "this" is what earlier launches measured, see earlier_machine(); without that nobody knows its costs.
/// @param experiment_file clusters and data are found relative to it. @param results_folder of the experiment.
/// @param num_threads that share the work.
/// @param planned is told how many points are done, from any of the threads, one at a time; may be empty.
/// @throws UserError, or InternalError, of the first bad point, with its number.
std::vector<PlannedPoint> plan_points(std::span<const Point> points, const std::string& experiment_file,
                                      const std::string& results_folder, int num_threads,
                                      const std::function<void(std::size_t)>& planned = {});

}  // namespace strata::predict
