#pragma once

/// @file
/// The combinations of degrees that the space has, in the order of what a step takes at least with them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/infinity.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/pipelines/degrees.hpp"
#include "planners/pipelines/step_bound.hpp"
#include "planners/planner.hpp"

namespace strata {

struct Combination {
  ParallelDegrees degrees;
  Plan plan;                    ///< of these degrees, with all else as the experiment asks
  double seconds = 0.0;         ///< that a step takes at least with these degrees and nothing in sub-batches
  double kernel_seconds = 0.0;  ///< that its kernels take alone
  bool is_too_large = false;    ///< however its states are held and whatever runs again
};

class Combinations {
 public:
  /// Those of @p global_batch samples that @p dimensions leave. @param request outlives this.
  Combinations(const PlanRequest& request, const Dimensions& dimensions, std::int64_t global_batch);
  Combinations(const Combinations&) = delete;  // its bounds look at its request
  Combinations& operator=(const Combinations&) = delete;

  std::span<const Combination> in_order() const { return in_order_; }
  /// Of the experiment, also those that dimensions leave out or that cannot be.
  std::span<const ParallelDegrees> all_degrees() const { return all_degrees_; }
  std::int64_t global_batch() const { return asked_.base.global_batch; }
  /// Of the first combination that cannot be; empty: all can.
  const std::string& refusal() const { return refusal_; }
  /// That the kernels of every combination take at least. 0: of one nothing is known.
  double kernel_seconds() const;
  /// That a step of @p plan takes at least by its passes alone (StepBounds::seconds_of_alike_blocks). 0: nothing is
  /// known, also of a plan that cannot be.
  double seconds_of_passes(const Plan& plan) const;

 private:
  PlanRequest asked_;  ///< with the batch; nothing runs again, unless that is left as the experiment asks
  StepBounds bounds_;  ///< of asked_
  std::vector<ParallelDegrees> all_degrees_;
  std::vector<Combination> in_order_;
  std::string refusal_;
};

}  // namespace strata
