#include "cost/fit.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace strata {

Line fit_alpha_beta(std::span<const TransferTime> times) {
  STRATA_INVARIANT(times.size() >= 2, "a line needs two points");
  // Weighted normal equations, weight 1/seconds².
  double w = 0.0;
  double wx = 0.0;
  double wxx = 0.0;
  double wy = 0.0;
  double wxy = 0.0;
  for (const TransferTime& t : times) {
    const double weight = 1.0 / (t.seconds * t.seconds);
    w += weight;
    wx += weight * t.sent_bytes;
    wxx += weight * t.sent_bytes * t.sent_bytes;
    wy += weight * t.seconds;
    wxy += weight * t.sent_bytes * t.seconds;
  }
  const double determinant = w * wxx - wx * wx;
  STRATA_INVARIANT(determinant > 0.0, "a line needs two sizes");
  Line line{(wy * wxx - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant, 0.0};
  if (line.alpha_seconds < 0.0) line = {0.0, wxy / wxx, 0.0};
  if (line.beta_seconds_per_byte < 0.0) line = {wy / w, 0.0, 0.0};
  for (const TransferTime& t : times) {
    const double predicted = line.alpha_seconds + line.beta_seconds_per_byte * t.sent_bytes;
    line.mean_relative_error += std::abs(predicted - t.seconds) / t.seconds / static_cast<double>(times.size());
  }
  return line;
}

}  // namespace strata
