#pragma once

/// @file
/// What a device reaches in products of matrices.

namespace strata {

/// FLOP/s of the product that is fastest among a few sizes.
struct ProductRates {
  double best = 0.0;       ///< of the fastest of its repetitions
  double sustained = 0.0;  ///< of all of them together: below the best where clocks fall under load or others disturb
};

}  // namespace strata
