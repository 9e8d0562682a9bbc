#pragma once

/// @file
/// What a rank's arena holds from moment to moment: lifetimes are the Program's, seconds are those of a run or of the
/// simulator. Where steps overlap, several of them have buffers at once, so that a step is looked at together with
/// those beside it (steps_beside of ir/program/repetition.hpp).

#include <cstdint>
#include <span>
#include <vector>

#include "ir/program/program.hpp"
#include "ir/program/repetition.hpp"
#include "ir/timeline/timeline.hpp"

namespace strata {

/// A training step of one rank, when it was there to be recorded.
struct RecordedStep {
  std::int64_t step = 0;
  std::int64_t begin_ns = 0;            ///< when the clock of its events started, on the rank's own
  std::vector<TimelineEvent> events{};  ///< any order
};

/// Live bytes by category from a moment on.
struct MemorySample {
  int rank = 0;
  std::int64_t time_ns = 0;  ///< on the clock of RecordedStep::begin_ns
  std::int64_t bytes[num_categories] = {};
  bool operator==(const MemorySample&) const = default;
};

/// From the beginning of the first to the end of the last of the steps @p counted. A buffer lives from the beginning of
/// the instruction that allocates it to the end of the one that frees it, persistent buffers throughout. One sample at
/// the beginning and one wherever something changes, by time; none where no step of @p counted is there.
/// @param steps those that count, and of those beside them the ones that there were.
std::vector<MemorySample> memory_over_time(const Program& program, std::span<const RecordedStep> steps,
                                           StepRange counted);

}  // namespace strata
