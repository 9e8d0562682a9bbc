#pragma once

/// @file
/// Rotary position embedding, half split as in LLaMA and Hugging Face: element i of a head's first half turns with
/// element i of its second. Angles are computed, not stored: in double, once for a position and all its samples and
/// heads. Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021.

#include <cstdint>

#include "base/dtype.hpp"
#include "exec/cpu/kernels/token_rows.hpp"

namespace strata::cpu {

struct RotaryDims {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t num_heads = 0;         ///< rotated heads at the start of each row; of a fused qkv: query and key heads
  std::int64_t num_copied_heads = 0;  ///< heads after those, taken over as they are: the value heads
  std::int64_t head_dim = 0;          ///< even
  DType dtype = DType::f32;           ///< of x and y: f32 or bf16
  double theta = 10000.0;             ///< pair i turns by position · theta^(-2 i / head_dim) radians
  std::int64_t first_position = 0;    ///< of each sample's first token
};

/// y[.., i] = x[.., i] cos − x[.., i + head_dim/2] sin and y[.., i + head_dim/2] = x[.., i + head_dim/2] cos + x[.., i]
/// sin. cos and sin are the double values rounded to f32; each output is rounded once more in f32, and once to bf16
/// where that is the type. y may be x (in place) where the strides are equal; otherwise they must not overlap.
void rotary_forward(const RotaryDims& dims, ConstTokenRows x, TokenRows y);

/// dx from dy: the inverse rotation, likewise.
void rotary_backward(const RotaryDims& dims, ConstTokenRows dy, TokenRows dx);

}  // namespace strata::cpu
