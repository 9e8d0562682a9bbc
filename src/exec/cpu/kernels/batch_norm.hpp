#pragma once

/// @file
/// Batch normalisation over the rows of x[rows,channels] (NHWC: rows = images · height · width). Statistics are kept in
/// f32 whatever the activations are, and their order of additions depends on the number of rows alone: no number of
/// threads changes a bit.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cpu {

using strata::BatchNormDims;

/// What backward needs; both [channels].
struct BatchNormStatistics {
  float* mean;
  float* inverse_deviation;  ///< 1 / sqrt(biased variance + epsilon)
};

/// For forward and backward alike.
std::int64_t batch_norm_workspace_bytes(const BatchNormDims& dims);

/// y = (x - mean) · inverse_deviation · gamma + beta with this batch's statistics, which are written.
/// @param workspace batch_norm_workspace_bytes(dims), 64-byte aligned; contents are lost.
void batch_norm_forward(const BatchNormDims& dims, const BatchNormOperands& operands,
                        const BatchNormStatistics& statistics, std::span<std::byte> workspace);

/// running := decay · running + weight · the mean, and the unbiased variance, of the batch of dims.rows rows whose
/// @p statistics batch_norm_forward() has written. Of the variance about eight bits less than of f32 are kept where it
/// is 256 times smaller than epsilon.
void update_running_statistics(const BatchNormDims& dims, const float* statistics, float decay, float weight,
                               const RunningStatistics& running);

/// y from the running statistics, for evaluation.
void batch_norm_inference(const BatchNormDims& dims, const BatchNormOperands& operands,
                          const RunningStatistics& running, std::span<std::byte> workspace);

/// dx overwritten; dgamma and dbeta (+)= their gradients.
void batch_norm_backward(const BatchNormDims& dims, const BatchNormBackwardOperands& operands, bool accumulate,
                         std::span<std::byte> workspace);

}  // namespace strata::cpu
