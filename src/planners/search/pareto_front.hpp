#pragma once

/// @file
/// Fronts of (resident bytes, seconds): points none of which needs more of one without saving the other, and their
/// sums. Every point remembers which two points it is the sum of.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata {

struct FrontPoint {
  std::int64_t resident_bytes = 0;
  double seconds = 0.0;
  int first = -1;   ///< index into the first summand
  int second = -1;  ///< index into the second
};

/// Bytes rise, seconds fall, both strictly.
using ParetoFront = std::vector<FrontPoint>;

/// The front of @p points, in any order.
ParetoFront front_of(std::vector<FrontPoint> points);

/// The front of all sums of a point of @p a and one of @p b. Time: about |a| |b| log |a|, less what is dominated.
ParetoFront sum_of(const ParetoFront& a, const ParetoFront& b);

/// Rounds bytes up to a grid so that at most @p max_points are left. @return true if it changed anything.
bool coarsen(ParetoFront& front, std::size_t max_points);

}  // namespace strata
