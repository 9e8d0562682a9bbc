#pragma once

/// @file
/// Spearman's rank correlation; equal values share the mean of their ranks.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace strata {

inline std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<double> ranks;
  for (const double value : values) {
    const auto below = std::ranges::count_if(values, [&](double other) { return other < value; });
    const auto equal = std::ranges::count(values, value);
    ranks.push_back(static_cast<double>(below) + 0.5 * static_cast<double>(equal - 1));
  }
  return ranks;
}

/// @param a, @param b equally many.
inline double rank_correlation(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = 0.5 * static_cast<double>(a.size() - 1);
  double xy = 0.0, xx = 0.0, yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

}  // namespace strata
