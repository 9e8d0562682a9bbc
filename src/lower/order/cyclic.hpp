#pragma once

/// @file
/// Cyclic data parallelism (Fournier et al.): micro-batches of one training step begin one after the other, evenly over
/// the time of a step, so that at every time each stage is used by one of them. Steps overlap, and a micro-batch reads
/// the parameters of its own training step or of the one before.
///
/// With N micro-batches i and K stages j, a time step the pass of one stage: micro-batch i begins 2K/N·i time steps
/// after micro-batch 0, takes a forward pass a time step, then a backward pass a time step, and the next training step
/// begins 2K time steps after this one. The last micro-batch completes the gradients of a stage, which is updated
/// behind its backward; or, where the norm of all gradients is asked for, all stages are behind that of the first one.
///
/// Source: Fournier et al., Cyclic Data Parallelism, 2024, sec. 3 and fig. 1.

#include <cstdint>

#include "ir/order/step_order.hpp"
#include "lower/order/step_part.hpp"
#include "partition/fresh_table.hpp"

namespace strata {

enum class CyclicUpdates : std::uint8_t {
  stage_by_stage,
  at_once,       ///< behind the norm of the step's gradients
  by_first_user  ///< of as many stages as micro-batches: by the rank that reads it first, before its next forward of it
};

/// Of all micro-batches the last one's rank updates. A rank of one micro-batch may wait for whatever it reads: its
/// table is free. @throws InternalError where @p fresh is of another size, or, of a rank with several, asks for
/// parameters that are not there in time.
StepOrder cyclic_order(const StepShape& shape, const FreshTable& fresh, const StepPart& part,
                       CyclicUpdates updates = CyclicUpdates::stage_by_stage);

/// Of rank @p rank of as many as there are micro-batches and stages, which takes one micro-batch and updates the stage
/// that it owns (partition/walking_parameters.hpp): before its own forward there, where that reads what the update
/// makes, else behind it, so that one time step hides the way of the sum. Repetitions of all ranks begin at one time,
/// with micro-batch 0: those of the others first end the step before.
/// @throws InternalError where @p fresh is of another size or asks for parameters that are not there in time.
StepOrder walking_order(const StepShape& shape, const FreshTable& fresh, int rank);

/// @throws InternalError where @p fresh is of another size than @p most, or has what that has not.
void refuse_what_is_not_in_time(const FreshTable& fresh, const FreshTable& most);

}  // namespace strata
