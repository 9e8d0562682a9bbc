#pragma once

/// @file
/// Cyclic data parallelism on a pyramid of ranks (ir/plan/stage_pyramid.hpp): the order of one replica of a stage,
/// which takes every so many micro-batches, one after the other.
///
/// With N micro-batches a step and C replicas of the stage: the replica that takes the last micro-batch of a step makes
/// the whole sum of the stage's gradients, and updates the stage behind it. The others get the sum from it, and update
/// behind the first micro-batch that they take afterwards, one of the next C - 1. None of these reads the new
/// parameters if the table asks for nothing that is not there in time: micro-batch i of the next step may from i = N -
/// 1 - j = C - 1 on. So every replica has its own states of the optimizer, and no parameter travels.

#include <cstdint>

#include "ir/order/step_order.hpp"
#include "lower/order/step_part.hpp"
#include "partition/fresh_table.hpp"

namespace strata {

/// Bodies of more training steps are refused: 8 stages take 210, 11 take 2520.
constexpr std::int64_t most_steps_of_a_pyramid = 512;

/// @param part one stage and a replica of it.  @param steps training steps of the body, a multiple of those after which
/// replicas take the same micro-batches again. @throws InternalError where @p fresh is of another size or asks for
/// parameters that are not there in time.
StepOrder pyramid_order(const StepShape& shape, const FreshTable& fresh, const StepPart& part, int steps);

}  // namespace strata
