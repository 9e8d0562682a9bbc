#pragma once

/// @file
/// What some cycles of the graph of a ring's events say before anybody looks at all of them: how long a step is at
/// least, and of a stage how many micro-batches read it fresh at most.
///
/// The cycles are those from an update of stage j, over the parameters to micro-batch i, its passes from stage j on and
/// back to it, and the sums of stage j to the last rank, to the next update: one training step where i reads the stage
/// fresh, else two.
///
/// With a given number of fresh readers these cycles are shortest where the last micro-batches are the fresh ones: the
/// later a micro-batch, the fewer ranks its gradients still go to, and relayed parameters come to the k-th reader
/// through k messages whoever it is. So a stage has one number to choose instead of a set.

#include <vector>

#include "planners/cyclic/ring_problem.hpp"

namespace strata {

class RingBounds {
 public:
  /// @param stages of @p problem; both outlive this.
  RingBounds(const RingProblem& problem, const RingStages& stages);

  /// Seconds of a step with whatever cut and table: what the last rank computes.
  double least_period() const { return least_period_; }
  /// With the cut into @p num_stages that has the shortest longest cycle, and whatever table.
  double least_period_of_cuts(int num_stages) const;
  /// Micro-batches that read the stage of pieces [begin, end) fresh, in a step of @p limit seconds at most.
  int most_fresh(int begin, int end, double limit) const;

 private:
  /// By the cycles of the stage of pieces [begin, end), with whatever column of a table.
  double least_of_stage(int begin, int end) const;
  /// Of the cycle of micro-batch @p i, which has its parameters through @p messages. @param stage its seconds.
  double cycle(int begin, const StageSeconds& stage, int i, int messages) const;

  const RingStages& stages_;
  int num_micro_batches_;
  bool adds_inside_, relays_;
  double least_period_;
};

}  // namespace strata
