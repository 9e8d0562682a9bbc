#pragma once

/// @file
/// What a step takes without simulating it: the longest path through the Programs of all classes with the times of
/// kernels and transfers known, one visit an instruction. Communication is exposed where it does not fit under compute.
/// The decision: what runs beside what — kernels beside transfers that slow them down, transfers that share NICs — is
/// read off the path and lengthens kernels and transfers on the next one, a few times over, where the simulator follows
/// every change of speed. Without either, both say the same.

#include "cost/cost_model.hpp"
#include "sim/job.hpp"
#include "sim/simulate.hpp"

namespace strata {

/// As simulate(), without events.
/// @throws InternalError where the Programs lock up; UserError for noise, which has no closed form, and for stragglers
/// in a job whose classes hold several ranks.
SimulationResult estimate(const Job& job, const CostModel& costs, const SimulationOptions& options = {});

}  // namespace strata
