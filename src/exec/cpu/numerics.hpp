#pragma once

/// @file
/// How results of the CPU's kernels may differ in their last bits.

namespace strata::cpu {

struct Numerics {
  /// Convolutions by transforms where those are faster (kernels/winograd.hpp); sums of integers are then not exact.
  bool winograd = false;
};

}  // namespace strata::cpu
