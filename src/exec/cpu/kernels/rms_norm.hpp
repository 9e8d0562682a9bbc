#pragma once

/// @file
/// Root-mean-square normalisation over the last dim (Zhang, Sennrich 2019), forward and backward.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cpu {

using strata::RmsNormDims;

/// y = x·r·weight with r = 1/√(avg(x²) + epsilon), row by row. x, y [rows,width]; weight [width].
/// @param statistics [rows] f32: r of each row. y may be x.
void rms_norm_forward(const RmsNormDims& dims, const void* x, const void* weight, void* y, float* statistics);

std::int64_t rms_norm_backward_workspace_bytes(const RmsNormDims& dims);

/// With x̂ = x·r and g = dy·weight: dx (+)= r·(g - x̂·avg(g·x̂)), dweight (+)= Σ_rows dy·x̂. Sums are in f32, rounded once;
/// their order depends on the dims alone.
/// @param workspace rms_norm_backward_workspace_bytes(dims) bytes, 64-byte aligned; contents are lost.
void rms_norm_backward(const RmsNormDims& dims, const RmsNormBackwardOperands& operands,
                       const RmsNormAccumulate& accumulate, std::span<std::byte> workspace);

}  // namespace strata::cpu
