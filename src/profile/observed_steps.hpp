#pragma once

/// @file
/// What measured steps of a Program show: how long its kernels took, and how much kernels and transfers did at once.

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cost/kernel_work.hpp"
#include "exec/executor.hpp"
#include "ir/machine/cost_profile.hpp"
#include "ir/program/program.hpp"
#include "ir/timeline/timeline.hpp"

namespace strata::profile {

struct ObservedSteps {
  struct Kernel {
    KernelShape shape;
    std::vector<double> seconds;  ///< by step: the mean over its instances, which holds what other ranks took away
  };
  std::map<std::pair<std::string, std::vector<double>>, Kernel> kernels;  ///< by kind and sizes
  std::vector<double> compute_seconds, communication_seconds;             ///< by step
  std::vector<double> both_seconds;                                       ///< a kernel and a transfer in progress
  std::vector<double> other_seconds;                                      ///< outside kernels and waits

  void add(const ObservedSteps& other);
  /// One more step. @param events of the body of @p program, in nanoseconds.
  void add(const Program& program, std::span<const TimelineEvent> events, const StepMeasurement& measurement);
};

/// A row for each kernel, with the median over steps.
std::vector<KernelTime> kernel_times(const ObservedSteps& steps, int ranks_on_node);

/// Each shape once, with the mean over its rows: where whole tensors are dealt to ranks, their updates differ in shape,
/// and some ranks have no such row.
std::vector<KernelTime> mean_by_shape(std::span<const KernelTime> of_ranks);

/// The factor by which work is slower while the other kind of work is in progress, at least 1, at most 10. Of its
/// @p after seconds it ran beside the other for @p both, at 1/s of the speed at which it takes @p before seconds alone:
/// before = after - both + both/s.
double slowdown(double before, double after, double both);

}  // namespace strata::profile
