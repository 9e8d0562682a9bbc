#pragma once

/// @file
/// Which samples of a micro-batch a rank trains on: they are cut over the data axis as collectives cut tensors
/// (chunk_of). Where ranks do not divide them, the last ones have fewer, or none; the loss is a mean over all samples
/// of the step, so that nothing has to be weighted by how many a rank has.

#include <cstdint>

#include "base/ceil_div.hpp"
#include "base/collective.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Over all ranks of a stage. Micro-batches are equal: verify(Plan) sees to that.
inline std::int64_t samples_of_micro_batch(const Plan& plan) { return plan.global_batch / plan.schedule.micro_batches; }

/// Of every micro-batch, counted from its first sample. Of meshes with a data axis; where operators are laid out, the
/// layouts say it (partition/tensor_layout).
inline Chunk samples_of_rank(const Plan& plan, int rank) {
  return chunk_of(samples_of_micro_batch(plan), axis_size(plan.mesh, "data"), coordinate(plan.mesh, "data", rank));
}

/// Of the rank that has most.
inline std::int64_t most_samples_of_rank(const Plan& plan) {
  return ceil_div(samples_of_micro_batch(plan), std::int64_t{axis_size(plan.mesh, "data")});
}

}  // namespace strata
