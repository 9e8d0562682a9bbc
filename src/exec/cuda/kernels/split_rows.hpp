#pragma once

/// @file
/// Norms and cross-entropy of rows whose features are split over ranks. Contracts are those of the CPU kernels of the
/// same names; calls are queued on @p stream.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cuda {

void norm_partial(const SplitNormDims& dims, const void* x, float* partial, cudaStream_t stream);
void norm_apply(const SplitNormDims& dims, const NormApplyOperands& operands, cudaStream_t stream);
/// @param workspace what workspace_bytes() says of the instruction. @throws Unsupported where two f32 rows exceed the
/// shared memory of a multiprocessor.
void norm_backward_partial(const SplitNormDims& dims, const NormBackwardPartialOperands& operands, bool accumulate,
                           float* workspace, cudaStream_t stream);
void norm_backward_apply(const SplitNormDims& dims, const NormBackwardApplyOperands& operands, bool accumulate,
                         cudaStream_t stream);

void cross_entropy_partial(const SplitCrossEntropyDims& dims, const void* logits, const std::int32_t* targets,
                           float* partial, cudaStream_t stream);
void cross_entropy_apply(const SplitCrossEntropyDims& dims, void* logits, const std::int32_t* targets, const float* all,
                         float scale, float* loss, cudaStream_t stream);

}  // namespace strata::cuda
