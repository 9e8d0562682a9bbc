#pragma once

/// @file
/// Steps that overlap, simulated as one list, and what each of them took.

#include <functional>

#include "cost/cost_model.hpp"
#include "sim/simulate.hpp"

namespace strata::sim {

/// Simulates a job's Programs of one step.
using SimulateOnce = std::function<SimulationResult(const Job&, const CostModel&, const SimulationOptions&)>;

/// @param job whose Programs' repetitions meet. See simulate().
SimulationResult simulate_overlapping(const Job& job, const CostModel& costs, const SimulationOptions& options,
                                      const SimulateOnce& simulate_once);

}  // namespace strata::sim
