#pragma once

/// @file
/// How results of a GPU may differ in their last bits.

namespace strata::cuda {

struct Numerics {
  bool deterministic = false;  ///< equal inputs give equal bits on one kind of GPU, at some cost in speed
  bool tf32 = false;           ///< f32 products on tensor cores, with operands rounded to 10 bits
};

}  // namespace strata::cuda
