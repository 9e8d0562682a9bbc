#pragma once

/// @file
/// Rotary position embedding, half split as in LLaMA and Hugging Face: element i of a head's first half turns with
/// element i of its second. Angles are computed, not stored: in double, once for a position and all its samples and
/// heads. Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021.

#include <cstdint>

#include "base/dtype.hpp"
#include "exec/cpu/kernels/token_rows.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cpu {

using strata::RotaryDims;

/// y[.., i] = x[.., i] cos − x[.., i + head_dim/2] sin and y[.., i + head_dim/2] = x[.., i + head_dim/2] cos + x[.., i]
/// sin. cos and sin are the double values rounded to f32; each output is rounded once more in f32, and once to bf16
/// where that is the type. y may be x (in place) where the strides are equal; otherwise they must not overlap.
void rotary_forward(const RotaryDims& dims, ConstTokenRows x, TokenRows y);

/// dx from dy: the inverse rotation, likewise.
void rotary_backward(const RotaryDims& dims, ConstTokenRows dy, TokenRows dx);

}  // namespace strata::cpu
