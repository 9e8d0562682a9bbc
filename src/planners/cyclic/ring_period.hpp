#pragma once

/// @file
/// How long a training step of cyclic data parallelism takes in the long run where ranks take a micro-batch each and
/// wait for nothing but what they need: the slowest cycle of passes, updates and messages, with the order that streams
/// have them in. Where transfers and kernels take as long as they do alone, it is the simulator's period.

#include <span>
#include <vector>

#include "cost/cycle_ratio.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Of one stage.
struct StageSeconds {
  double forward = 0.0;
  double backward = 0.0;
  double addition = 0.0;  ///< of gradients to a sum, where that is not done by the backward
  double update = 0.0;
  double sum = 0.0;         ///< its gradients from one rank to the next
  double parameters = 0.0;  ///< its parameters from one rank to another
  double token = 0.0;       ///< that tells the next rank of the end of its forward, or of its backward
};

/// @param schedule cyclic, a rank a micro-batch; each stage is updated behind its own backward.
/// @param known by stage: its parameters are waited for; empty: those of all stages are.
EventGraph ring_events(const Schedule& schedule, std::span<const StageSeconds> stages,
                       const std::vector<bool>& known = {});

/// Seconds of a training step. Where not all stages are @p known, a lower bound of what a step takes whatever the table
/// says of the others: their parameters only add waits.
double ring_period(const Schedule& schedule, std::span<const StageSeconds> stages, const std::vector<bool>& known = {});

}  // namespace strata
