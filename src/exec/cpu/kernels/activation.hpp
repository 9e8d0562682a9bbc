#pragma once

/// @file
/// Activation functions, forward and backward. Backward needs what forward read (relu: what it wrote), so no extra
/// tensor is saved. Tensors are flat, f32 or bf16; arithmetic is f32. An output may be one of the inputs of equal
/// shape.

#include <cstdint>

#include "base/dtype.hpp"

namespace strata::cpu {

/// GPT-2's gelu: x/2·(1 + tanh(√(2/π)·(x + 0.044715x³))), evaluated as x·sigmoid(2√(2/π)·(x + 0.044715x³)), which is
/// the same function and keeps the relative accuracy of its negative tail.
void gelu_forward(DType dtype, const void* x, void* y, std::int64_t n);
void gelu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n);

/// x·Φ(x), Φ the standard normal distribution function.
void gelu_erf_forward(DType dtype, const void* x, void* y, std::int64_t n);
void gelu_erf_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n);

/// max(x, 0), NaN for NaN. dx = 0 where y ≤ 0, dy elsewhere.
void relu_forward(DType dtype, const void* x, void* y, std::int64_t n);
void relu_backward(DType dtype, const void* dy, const void* y, void* dx, std::int64_t n);

/// x·sigmoid(x).
void silu_forward(DType dtype, const void* x, void* y, std::int64_t n);
void silu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n);

/// y[rows,width] = silu(gate)·up, where a row of x [rows,2·width] is gate, then up (Shazeer 2020). y must not overlap
/// x.
void swiglu_forward(DType dtype, const void* x, void* y, std::int64_t rows, std::int64_t width);
/// dx [rows,2·width], may be x; dy [rows,width].
void swiglu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t rows, std::int64_t width);

}  // namespace strata::cpu
