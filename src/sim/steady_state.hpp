#pragma once

/// @file
/// Steps in the long run: where they overlap, the first ones begin with empty ranks and the last ones end alone, and
/// between them they repeat, each like the one before or like one some steps earlier. How soon nobody knows beforehand,
/// so that more of them are simulated until they do.

#include "cost/cost_model.hpp"
#include "sim/simulate.hpp"

namespace strata {

/// simulate() of @p options.num_steps steps that are steady, the last of them SimulationResult::steady_step, and as
/// many around them as that takes. SimulationResult::period_steps says after how many they repeat; 0: noise makes them
/// differ, or they have not begun to repeat after sixteen times as many as most jobs need.
SimulationResult simulate_steady(const Job& job, const CostModel& costs, const SimulationOptions& options = {});

/// The fewest steps after which those up to @p result.steady_step repeat, on every class, and equally fast on all: the
/// last @p num_steps of them and at least two periods; 0: none that there are enough steps for.
int period_of(const SimulationResult& result, int num_steps);

/// Sets SimulationResult::period_steps. Where all steps repeat but the steady one, the one before is the steady one: no
/// other begins while the last step ends, so that its transfers may have the NICs to themselves and it is quicker.
void find_period(SimulationResult& result, int num_steps);

/// Of the slowest class, the mean over a period; over the steady step alone where none was found.
double steady_step_seconds(const SimulationResult& result);

}  // namespace strata
