#pragma once

/// @file
/// A plan of fewer micro-batches of the same size.

#include "ir/plan/plan.hpp"

namespace strata {

/// @p plan, or the same with @p micro_batches of its micro-batches where it has more.
inline Plan with_at_most(Plan plan, int micro_batches) {
  Schedule& schedule = plan.schedule;
  if (schedule.micro_batches > micro_batches) {
    plan.global_batch = plan.global_batch / schedule.micro_batches * micro_batches;
    schedule.micro_batches = micro_batches;
  }
  return plan;
}

}  // namespace strata
