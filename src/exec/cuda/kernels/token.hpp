#pragma once

/// @file
/// Kernels over tokens: embedding, rotary positions, cross-entropy. Contracts are those of the CPU kernels of the same
/// names; calls are queued on @p stream.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cuda {

/// A place the host can read in which a kernel leaves a token or target out of range, plus 1; it must be 0 before.
using OutOfRange = std::int64_t;

void embedding_forward(const EmbeddingDims& dims, const std::int32_t* tokens, const void* table, const void* positions,
                       void* y, OutOfRange* out_of_range, cudaStream_t stream);
/// Each row of a gradient is summed in f32 in the order of dy's rows and rounded once.
/// @param order room for dims.rows keys.
void embedding_backward(const EmbeddingDims& dims, const EmbeddingBackwardOperands& operands,
                        const EmbeddingAccumulate& accumulate, std::uint64_t* order, cudaStream_t stream);

/// @p angles: [seq, head_dim], of each position the cosines, then the sines of its pairs' angles, formed in double.
void rotary_angles(const RotaryDims& dims, float* angles, cudaStream_t stream);
/// y from x, both [batch, seq, (num_heads + num_copied_heads) · head_dim] without gaps; y may be x.
/// @param angles of equal dims. @param direction +1 forward, -1 backward.
void rotary(const RotaryDims& dims, const float* angles, const void* x, void* y, float direction, cudaStream_t stream);

void cross_entropy_gradient(const CrossEntropyDims& dims, void* logits, const std::int32_t* targets, float scale,
                            float* loss, OutOfRange* out_of_range, cudaStream_t stream);
void top_k(const CrossEntropyDims& dims, const void* logits, const std::int32_t* targets, const TopKOutputs& outputs,
           OutOfRange* out_of_range, cudaStream_t stream);

}  // namespace strata::cuda
