#pragma once

/// @file
/// Plans of cyclic training in each of its implementations.

#include <string>

#include "ir/plan/plan.hpp"
#include "ir/plan/stage_pyramid.hpp"

namespace strata {

enum class Implementation { single, pipeline, multi, zero, model };
constexpr auto all_implementations = {Implementation::single, Implementation::pipeline, Implementation::multi,
                                      Implementation::zero, Implementation::model};

/// N stages and micro-batches of two samples.
inline Plan plan_of(Implementation implementation, int n, const std::string& fresh) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.stages.count = n;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = fresh};
  plan.global_batch = 2 * n;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  int ranks = n;
  switch (implementation) {
    case Implementation::single: ranks = 1; break;
    case Implementation::pipeline: plan.mesh.axes = {{"stage", n}}; break;
    case Implementation::multi:
      plan.mesh.axes = {{"micro_batch", n}};
      plan.schedule.shift = "paced";
      break;
    case Implementation::zero:
      plan.mesh.axes = {{"micro_batch", n}};
      plan.mesh.placement = "zero-ring";
      plan.operators = {OperatorRule{.match = "*", .state = StateFactors{.walks = true}}};
      break;
    case Implementation::model:
      plan.mesh.axes = {{"stage", n}};
      plan.mesh.placement = "pyramid";
      ranks = StagePyramid{n}.num_ranks();
      break;
  }
  plan.mesh.ranks_per_node = ranks;
  return plan;
}

}  // namespace strata
