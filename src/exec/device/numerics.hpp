#pragma once

/// @file
/// How results of a GPU may differ in their last bits.

#include <cstdint>

namespace strata::cuda {

/// Whose kernels compute attention.
enum class AttentionKernels : std::uint8_t {
  automatic,  ///< cuDNN's where cudnn_attention_condition has nothing against it, ours elsewhere
  cudnn,
  strata,
};

struct Numerics {
  bool deterministic = false;  ///< equal inputs give equal bits on one kind of GPU, at some cost in speed or memory
  bool tf32 = false;           ///< f32 products on tensor cores, with operands rounded to 10 bits
  AttentionKernels attention = AttentionKernels::automatic;
  /// The kernel of a product is the fastest of those that cuBLASLt names, by a clock; not where deterministic. Another
  /// run may choose another one.
  bool time_products = false;
};

}  // namespace strata::cuda
