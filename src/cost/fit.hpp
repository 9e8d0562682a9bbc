#pragma once

/// @file
/// A straight line through measured transfer times.

#include <span>

namespace strata {

/// One measured collective: what this rank sent, and how long it took.
struct TransferTime {
  double sent_bytes = 0.0;
  double seconds = 0.0;
};

struct Line {
  double alpha_seconds = 0.0;
  double beta_seconds_per_byte = 0.0;
  double mean_relative_error = 0.0;  ///< mean of |line - measured| / measured
};

/// seconds ≈ alpha + beta · sent_bytes by least squares on relative errors, so that small messages count as much as
/// large ones; alpha and beta are not negative. Source: AutoDDL sec. 3.2.
/// @param times at least two, with different sizes.
Line fit_alpha_beta(std::span<const TransferTime> times);

}  // namespace strata
