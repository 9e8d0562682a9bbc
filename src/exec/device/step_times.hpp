#pragma once

/// @file
/// From the begin and end of each instruction on its stream to what a step's measurement says.

#include <span>

#include "exec/executor.hpp"
#include "ir/program/program.hpp"

namespace strata {

/// @param events of the body, in its order, in nanoseconds since the step began; times of an instruction begin when
/// those it waits for are complete. Sets compute_seconds (union over kernels), communication_seconds (union over
/// collectives) and exposed_seconds (the compute stream stood still until a collective it waits for was complete).
void add_step_times(const Program& program, std::span<const TimelineEvent> events, StepMeasurement& measurement);
/// Likewise without exposed_seconds: where steps overlap, the compute stream may stand still for another step's.
void add_busy_times(const Program& program, std::span<const TimelineEvent> events, StepMeasurement& measurement);

/// Where nothing was timed: all three are NaN.
void set_unknown_times(StepMeasurement& measurement);

}  // namespace strata
