#pragma once

/// @file
/// Which of the actions of a list are issued at one place: gradient_sums and parameter_gathers say it of each operator.

namespace strata {

/// The actions [begin, end).
struct ActionRange {
  int begin = 0;
  int end = 0;
  bool operator==(const ActionRange&) const = default;
};

}  // namespace strata
