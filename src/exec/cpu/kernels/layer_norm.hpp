#pragma once

/// @file
/// Layer normalisation over the last dim (Ba, Kiros, Hinton 2016), forward and backward. The statistics are saved, the
/// normalised values are computed again in backward.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cpu {

using strata::LayerNormDims;

/// y = (x - mean)·rstd·weight + bias, row by row; variance divided by width. x, y [rows,width]; weight, bias [width].
/// @param statistics [rows,2] f32: mean and rstd = 1/√(variance + epsilon) of each row. y may be x.
void layer_norm_forward(const LayerNormDims& dims, const void* x, const void* weight, const void* bias, void* y,
                        float* statistics);

std::int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& dims);

/// With x̂ = (x - mean)·rstd and g = dy·weight: dx (+)= rstd·(g - avg(g) - x̂·avg(g·x̂)), dweight (+)= Σ_rows dy·x̂, dbias
/// (+)= Σ_rows dy. Sums are in f32, rounded once; their order depends on the dims alone.
/// @param workspace layer_norm_backward_workspace_bytes(dims) bytes, 64-byte aligned; contents are lost.
void layer_norm_backward(const LayerNormDims& dims, const LayerNormBackwardOperands& operands,
                         const LayerNormAccumulate& accumulate, std::span<std::byte> workspace);

}  // namespace strata::cpu
