#pragma once

/// @file
/// What was recorded of steps comes home after training: events and memory of all ranks, as rows of results, on one
/// clock.

#include <functional>
#include <vector>

#include "comm/world.hpp"
#include "ir/program/program.hpp"
#include "ir/timeline/memory_over_time.hpp"
#include "results/rows.hpp"

namespace strata::run {

/// Of one rank.
struct TimelineRows {
  std::vector<results::EventRow> events;
  std::vector<results::MemoryRow> memory;
};

/// Collective. @param steps of this rank's @p program: those @p counted, and those beside them for what they held.
/// @param add called on rank 0 with the rows of each rank in turn.
void gather_timeline(const comm::World& world, const Program& program, const std::vector<RecordedStep>& steps,
                     StepRange counted, const std::function<void(const TimelineRows&)>& add);

}  // namespace strata::run
