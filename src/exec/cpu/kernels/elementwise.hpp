#pragma once

/// @file
/// Flat tensors: fill, copy, cast, scale, accumulate, and the sums behind gradient clipping. f32 or bf16 storage,
/// arithmetic in f32. The order of every sum depends on the number of elements alone.

#include <cstdint>

#include "base/dtype.hpp"

namespace strata::cpu {

/// y[n] = value.
void fill(DType dtype, void* y, std::int64_t n, float value);

/// y[n] = x, byte by byte, of any dtype. Must not overlap.
void copy(DType dtype, const void* x, void* y, std::int64_t n);

/// y[n] = x rounded to the other type (to nearest even) or widened exactly; equal types are copied.
void cast(DType from, const void* x, DType to, void* y, std::int64_t n);

/// y[n] *= factor.
void scale(DType dtype, void* y, std::int64_t n, float factor);

/// y[n] += x, in f32, rounded once to y's type.
void accumulate(DType x_dtype, const void* x, DType y_dtype, void* y, std::int64_t n);

/// *sum (+)= scale · Σ x, with x in f32 and the sum in double, rounded once.
void sum(const float* x, std::int64_t n, float scale, float* sum, bool accumulate);

/// *sum (+)= Σ x². Groups of 4096 are added in f32, the groups in double; rounded once.
void sum_of_squares(DType dtype, const void* x, std::int64_t n, float* sum, bool accumulate);

/// Global-norm clipping as torch.nn.utils.clip_grad_norm_: *norm = √sum_of_squares, *factor = min(1, clip_norm/(norm +
/// 1e-6)), NaN where the norm is.
/// @param norm may be null.
void clip_factor(float sum_of_squares, float clip_norm, float* factor, float* norm);

}  // namespace strata::cpu
