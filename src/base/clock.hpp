#pragma once

/// @file
/// The clock that instructions, transfers and steps are timed with.

#include <chrono>
#include <cstdint>

namespace strata {

/// Of the steady clock, in nanoseconds.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace strata
