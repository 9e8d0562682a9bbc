#pragma once

/// @file
/// Steps that overlap, simulated as one list, and what each of them took.

#include <functional>
#include <span>

#include "cost/cost_model.hpp"
#include "ir/program/repetition.hpp"
#include "sim/simulate.hpp"

namespace strata::sim {

/// Simulates what each class of the job runs, by class, as one step.
using SimulateOnce = std::function<SimulationResult(std::span<const InstructionList>, const SimulationOptions&)>;

/// @param job whose Programs' repetitions meet. See simulate().
SimulationResult simulate_overlapping(const Job& job, const CostModel& costs, const SimulationOptions& options,
                                      const SimulateOnce& simulate_once);

}  // namespace strata::sim
