#pragma once

/// @file
/// The median of measured values.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace strata {

/// Of at least one value; the mean of the two middle ones of an even number.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

}  // namespace strata
