#pragma once

/// @file
/// Which samples are computed together, and which of them a rank trains on.
///
/// A micro-batch is cut over the data axis as collectives cut tensors (chunk_of). Where ranks do not divide it, the
/// last ones have fewer samples, or none; the loss is a mean over all samples of the step, so that nothing has to be
/// weighted by how many a rank has. Its sub-batches are neighbours in it, the same for all operators, and each is cut
/// over ranks as a micro-batch is.

#include <cstdint>
#include <span>

#include "base/ceil_div.hpp"
#include "base/collective.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// Over all ranks of a stage. Micro-batches are equal: verify(Plan) sees to that.
inline std::int64_t samples_of_micro_batch(const Plan& plan) { return plan.global_batch / plan.schedule.micro_batches; }

/// Of every micro-batch, counted from its first sample, over all ranks of a stage. Of what a rank has of a micro-batch
/// where samples are cut most its sub-batches differ by one sample at most, the first ones being the larger.
Chunk samples_of_sub_batch(const Plan& plan, std::span<const OperatorDecision> decisions, int sub_batch);

/// What of @p num_samples neighbours a rank has, counted from their first one. Of meshes with a data axis; where
/// operators are laid out, the layouts say it (partition/tensor_layout).
inline Chunk samples_of_rank(const Plan& plan, std::int64_t num_samples, int rank) {
  return chunk_of(num_samples, axis_size(plan.mesh, "data"), coordinate(plan.mesh, "data", rank));
}
/// Of every micro-batch.
inline Chunk samples_of_rank(const Plan& plan, int rank) {
  return samples_of_rank(plan, samples_of_micro_batch(plan), rank);
}

/// Of the rank that has most.
inline std::int64_t most_samples_of_rank(const Plan& plan) {
  return ceil_div(samples_of_micro_batch(plan), std::int64_t{axis_size(plan.mesh, "data")});
}

}  // namespace strata
