#include "run/stopping_rule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace strata::run {

double relative_half_width(std::span<const double> seconds) {
  const auto n = static_cast<int>(seconds.size());
  // The interval [x_(k+1), x_(n-k)] misses the median with probability 2 P(Binomial(n, 1/2) <= k): the largest k below
  // 1 %.
  int k = -1;
  double tail = 0.0;
  for (int i = 0; i < n / 2; ++i) {
    tail += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0) - n * std::log(2.0));
    if (2.0 * tail > 0.01) break;
    k = i;
  }
  if (k < 0) {
    return std::numeric_limits<double>::infinity();
  }
  std::vector<double> sorted(seconds.begin(), seconds.end());
  std::ranges::sort(sorted);
  const auto at = [&](int i) { return sorted[static_cast<std::size_t>(i)]; };
  const double median = (at((n - 1) / 2) + at(n / 2)) / 2.0;
  return (at(n - 1 - k) - at(k)) / 2.0 / median;
}

bool measured_enough(const MeasureSection& rule, std::span<const double> measured) {
  const auto n = static_cast<std::int64_t>(measured.size());
  return n >= rule.max_steps || (n >= rule.min_steps && relative_half_width(measured) < rule.stop_when_ci_below);
}

}  // namespace strata::run
