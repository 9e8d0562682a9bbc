#pragma once

/// @file
/// Norms and cross-entropy of rows whose features are split over ranks: what a rank makes of its part, and how the
/// parts of all are combined. Tensors are row-major and contiguous. `partial` and `all` are f32: [rows, 2] or [rows,
/// 3], and such a matrix a rank, one after the other. A rank may have no features of its rows.

#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cpu {

/// Mean of a row's part and its squared deviations from it; rms: 0 and its squares. Behind them the number of its
/// features, where parts are unequal (dims.features), which is exact in f32 up to 2^24.
void norm_partial(const SplitNormDims& dims, const void* x, float* partial);
/// y and the statistics of whole rows.
void norm_apply(const SplitNormDims& dims, const NormApplyOperands& operands);

std::int64_t norm_backward_partial_workspace_bytes(const SplitNormDims& dims);
/// The sums over a row's part of dy·weight and of dy·weight·(normalised x), and this rank's dweight and dbias, to which
/// @p accumulate belongs.
void norm_backward_partial(const SplitNormDims& dims, const NormBackwardPartialOperands& operands, bool accumulate,
                           std::span<std::byte> workspace);
/// dx (+)= the gradient of this rank's features.
void norm_backward_apply(const SplitNormDims& dims, const NormBackwardApplyOperands& operands, bool accumulate);

/// Maximum of a row's part, sum of exponentials above it, and the logit of the target where it is here, else 0.
void cross_entropy_partial(const SplitCrossEntropyDims& dims, const void* logits, const std::int32_t* targets,
                           float* partial);
/// loss[rows], and the gradient times @p scale in the place of the logits; see cross_entropy_gradient().
void cross_entropy_apply(const SplitCrossEntropyDims& dims, void* logits, const std::int32_t* targets, const float* all,
                         float scale, float* loss);

}  // namespace strata::cpu
