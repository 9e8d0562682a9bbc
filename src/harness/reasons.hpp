#pragma once

/// @file
/// What is wrong with many points, on one screen: a line a reason.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::harness {

/// One point, or one block of one, with what is to be said of it.
struct Complaint {
  std::string state;    ///< in a word or two: "oom"
  std::string message;  ///< may have several lines, may be empty
  std::string point_id;
  std::int64_t block = -1;  ///< -1: not head to head
  bool is_bad = true;       ///< red on a terminal
};

/// A line a reason, with how many have it and the point of one of them, the most frequent first. Messages that differ
/// in numbers alone are one reason. Reasons beyond a screen are counted. @param colour for a terminal. @param all_are
/// where each point can be read, for those who are shown a count.
std::string by_reason(const std::vector<Complaint>& complaints, bool colour, std::string_view all_are = "");

}  // namespace strata::harness
