#pragma once

/// @file
/// A plan's seconds, but of one that does not fit what it needs at least alone, where that is known much sooner.

#include "planners/evaluate.hpp"

namespace strata {

/// What least_memory() lowers of @p plan: few blocks, but of a pipeline's micro-batches as many as fill it, of which
/// there may be few more, or of gpipe's a few twice. All of it is lowered for its seconds anyway.
inline bool is_much_less_than_all(const Plan& plan) {
  constexpr int often = 6, few = 4;
  const int places = axis_size(plan.mesh, "stage");
  const int lowered = plan.schedule.kind == ScheduleKind::gpipe ? few : places;
  return places == 1 || plan.schedule.micro_batches >= often * lowered;
}

inline Evaluation memory_first(const Evaluate& evaluate, const Plan& plan) {
  if (plan.device_capacity_bytes > 0 && is_much_less_than_all(plan)) {
    Evaluation least = evaluate.least_memory(plan);
    if (!least.feasible()) return least;
  }
  return evaluate(plan);
}

}  // namespace strata
