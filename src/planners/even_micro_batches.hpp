#pragma once

/// @file
/// What every mode asks of the batch.

#include <fmt/core.h>

#include "base/error.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// A batch of 0 is still to be chosen. Ranks need not divide a micro-batch (partition/sample_parts).
/// @throws Unsupported where micro-batches do not divide the batch.
inline void refuse_uneven_micro_batches(const Plan& plan) {
  const int micro_batches = plan.schedule.micro_batches;
  if (plan.global_batch % micro_batches == 0) return;
  throw Unsupported(fmt::format("{} on {} ranks: {} samples are not divisible by {} micro-batches", plan.strategy,
                                plan.mesh.num_ranks(), plan.global_batch, micro_batches));
}

}  // namespace strata
