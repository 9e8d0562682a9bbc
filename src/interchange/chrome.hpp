#pragma once

/// @file
/// Timelines as Chrome traces, which Perfetto shows.

#include <span>
#include <string>

#include "ir/timeline/memory_over_time.hpp"
#include "ir/timeline/timeline.hpp"

namespace strata {

/// Chrome trace event format (JSON), opened by Perfetto: one process a rank, one thread a stream, and a counter of
/// memory where samples are given.
/// @param memory times count from the beginning of the timeline's first step.
std::string to_chrome_trace(const Timeline& timeline, std::span<const MemorySample> memory = {});

}  // namespace strata
