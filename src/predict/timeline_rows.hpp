#pragma once

/// @file
/// Recorded steps of a run or of a simulation as rows of results.

#include <cstdint>
#include <vector>

#include "ir/program/program.hpp"
#include "ir/timeline/memory_over_time.hpp"
#include "results/rows.hpp"
#include "sim/simulate.hpp"

namespace strata::predict {

/// All steps of one class, @p rank's Program, as a run would have recorded them; their numbers are the simulator's.
std::vector<RecordedStep> recorded_steps(const SimulationResult& simulation, std::size_t of_class, int rank);

/// @param zero_ns when the first recorded step began on rank 0.
results::EventRow event_row(const Program& program, const TimelineEvent& event, std::int64_t step_begin_ns,
                            std::int64_t zero_ns);
results::MemoryRow memory_row(const MemorySample& sample, std::int64_t zero_ns);

}  // namespace strata::predict
