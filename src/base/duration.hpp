#pragma once

/// @file
/// Lengths of time for people.

#include <fmt/format.h>

#include <string>

namespace strata {

/// "0.004 s", "12.3 s", "4.5 min", "17.2 h".
inline std::string duration_in_words(double seconds) {
  if (seconds < 1.0) return fmt::format("{:.3f} s", seconds);
  if (seconds < 120.0) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200.0) return fmt::format("{:.1f} min", seconds / 60.0);
  return fmt::format("{:.1f} h", seconds / 3600.0);
}

}  // namespace strata
