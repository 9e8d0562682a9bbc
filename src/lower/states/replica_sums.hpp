#pragma once

/// @file
/// How the gradients of a replica of a stage in a pyramid become the sum that its update reads: a value, as of
/// gradient_sums.
///
/// Within a training step of N micro-batches the partial sum goes from micro-batch to micro-batch, so from replica to
/// replica; each adds its micro-batch's gradients in the kernels that make them, or, with schedule.sum = "after",
/// behind these. Only the last stage, which has one replica, adds them all up in one place. All sums are made in the
/// order of micro-batches, as one rank does, and are equal bit for bit.
///
/// The replica of the last micro-batch has the whole sum and updates at once; it hands the sum on, and so does each
/// that gets it but the last. With C replicas and G bytes of gradients a stage sends (N - 1 + C - 1) G a training step,
/// no parameters, and each replica has its own states of the optimizer. If one replica alone had them the others would
/// hold less, but no rank of the pyramid could be smaller, since this one holds as much as here; and at i + j = N - 1,
/// where the replica that completes the sum reads the updated parameters next, two messages would be exposed: the sum
/// to that rank, the parameters back. States that walk along would be 1, 2 or 3 times the bytes of the sum (momentum,
/// Adam, with master weights).

#include <span>

#include "ir/model/model_graph.hpp"
#include "ir/order/step_order.hpp"
#include "ir/plan/plan.hpp"
#include "lower/states/gradient_buckets.hpp"
#include "lower/states/gradient_contributions.hpp"
#include "lower/states/gradient_sums.hpp"
#include "lower/states/replica_links.hpp"
#include "partition/shards.hpp"

namespace strata {

/// Of training step @p step of a body, whose items @p order has.  @param contributions of @p order.
GradientSums replica_sums(const StepOrder& order, int step, std::span<const GradientContribution> contributions,
                          const GradientBuckets& buckets, const Plan& plan, std::span<const ParameterShard> shards,
                          const ReplicaLinks& links);

}  // namespace strata
