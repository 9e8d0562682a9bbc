#pragma once

/// @file
/// How long something went on, and two things at once, by the times at which their parts began and ended.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace strata {

/// [begin, end), in nanoseconds.
using Interval = std::pair<std::int64_t, std::int64_t>;

/// Length of the union: what several cover counts once.
inline std::int64_t union_ns(std::vector<Interval> intervals) {
  std::ranges::sort(intervals);
  std::int64_t total = 0;
  std::int64_t covered_until = std::numeric_limits<std::int64_t>::min();
  for (const auto& [begin, end] : intervals) {
    total += std::max<std::int64_t>(0, end - std::max(begin, covered_until));
    covered_until = std::max(covered_until, end);
  }
  return total;
}

/// Length of what the unions of both have in common.
inline std::int64_t common_ns(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return union_ns(a) + union_ns(b) - union_ns(std::move(both));
}

}  // namespace strata
