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

std::int64_t latest_end(const MeasureSection& rule, std::int64_t num_steps, std::int64_t first_step,
                        const FillAndDrain& unmeasured) {
  if (num_steps > 0) return num_steps;
  return first_step + std::max(rule.warmup_steps, unmeasured.fill) + rule.max_steps + unmeasured.drain;
}

std::int64_t steps_until_exchange(const MeasureSection& rule, std::int64_t num_steps, std::int64_t step,
                                  std::int64_t end, std::span<const double> measured_seconds) {
  constexpr double period_seconds = 0.3;
  const bool is_fixed = num_steps > 0;
  if (step >= end || (!is_fixed && measured_enough(rule, measured_seconds))) return 0;
  if (measured_seconds.empty()) return 1;
  const auto fitting = static_cast<std::int64_t>(period_seconds / measured_seconds.back());
  std::int64_t count = std::clamp<std::int64_t>(fitting, 1, 64);
  if (is_fixed) {
    count = std::min(count, end - step);
  } else {
    // Not past the point where the rule is asked next.
    const auto n = static_cast<std::int64_t>(measured_seconds.size());
    count = std::min(count, n < rule.min_steps ? rule.min_steps - n : std::max<std::int64_t>(1, n / 8));
    count = std::min(count, std::max<std::int64_t>(1, rule.max_steps - n));
  }
  return count;
}

}  // namespace strata::run
