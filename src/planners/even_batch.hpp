#pragma once

/// @file
/// What every mode over data ranks asks of the batch.

#include <fmt/core.h>

#include "base/error.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// @param plan with its mesh's axes; a batch of 0 is still to be chosen.
/// @throws Unsupported where data ranks × micro-batches do not divide the batch.
inline void refuse_uneven_batch(const Plan& plan) {
  const int data = axis_size(plan.mesh, "data");
  const int micro_batches = plan.schedule.micro_batches;
  if (plan.global_batch % (std::int64_t{data} * micro_batches) == 0) return;
  throw Unsupported(fmt::format("{} on {} ranks: {} samples are not divisible by {} data ranks × {} micro-batches",
                                plan.strategy, plan.mesh.num_ranks(), plan.global_batch, data, micro_batches));
}

}  // namespace strata
