#pragma once

/// @file
/// When every instruction began and ended, from a run or from the simulator: one type, so that measured and predicted
/// are compared row by row. Times are nanoseconds since the step's start on the rank's own clock.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

struct TimelineEvent {
  int rank = 0;
  std::int64_t step = 0;
  int stream = 0;
  int instruction = 0;  ///< index into the Program's body
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t bytes_sent = 0;  ///< collectives and sends
  bool operator==(const TimelineEvent&) const = default;
};

struct Timeline {
  bool simulated = false;
  std::vector<std::string> streams;       ///< names by stream number
  std::vector<std::string> instructions;  ///< labels by instruction number
  std::vector<TimelineEvent> events;      ///< sorted by rank, step, begin
  bool operator==(const Timeline&) const = default;
};

/// What an instruction is called in a timeline: "linear_forward block[0].mlp.fc1", "all_reduce bucket[0]".
std::string instruction_label(const Instruction& instruction);

/// @throws InternalError: ids in range, begin <= end, events of one stream of one rank do not overlap.
void verify(const Timeline& timeline);
/// Stable text, one line an event. parse_timeline(to_text(t)) == t.
std::string to_text(const Timeline& timeline);
/// @throws UserError with line.
Timeline parse_timeline(std::string_view text);

}  // namespace strata
