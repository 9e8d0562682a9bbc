#pragma once

/// @file
/// Events of all ranks come home after training: what was kept of their timelines, as rows of results.

#include <functional>
#include <span>
#include <vector>

#include "comm/world.hpp"
#include "ir/program/program.hpp"
#include "ir/timeline/timeline.hpp"
#include "results/rows.hpp"

namespace strata::run {

/// Collective. @param events of this rank's @p program. @param add called on rank 0 with the rows of each rank in turn.
void gather_timeline(const comm::World& world, const Program& program, std::span<const TimelineEvent> events,
                     const std::function<void(const std::vector<results::EventRow>&)>& add);

}  // namespace strata::run
