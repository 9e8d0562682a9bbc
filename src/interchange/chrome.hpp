#pragma once

/// @file
/// Timelines as Chrome traces, which Perfetto shows.

#include <span>
#include <string>

#include "ir/timeline/timeline.hpp"

namespace strata {

/// Chrome trace event format (JSON), opened by Perfetto: one process a rank, one thread a stream, and a counter of
/// memory where samples are given.
std::string to_chrome_trace(const Timeline& timeline, std::span<const MemorySample> memory = {});

}  // namespace strata
