#pragma once

/// @file
/// Where the tokens of a tensor [batch, seq, heads, head_dim] lie: a tensor of its own, or a slice of a fused
/// activation.

#include <cstdint>

namespace strata::cpu {

/// Token (sample, position) begins row_stride · (sample · seq + position) elements after `data`; its heads follow each
/// other.
struct ConstTokenRows {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
};
struct TokenRows {
  void* data = nullptr;
  std::int64_t row_stride = 0;
};

}  // namespace strata::cpu
