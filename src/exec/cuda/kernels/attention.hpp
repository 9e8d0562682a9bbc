#pragma once

/// @file
/// Multi-head attention on a fused qkv, in f32 arithmetic: any head size up to 256, grouped key-value heads, causal or
/// not, dropout by global index. The contract is exec/cpu/kernels/attention's; calls are queued on @p stream.

#include <cuda_runtime_api.h>

#include "base/random.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

/// @param qkv [batch, seq, num_heads + 2 · num_kv_heads, head_dim]; y [batch, seq, num_heads, head_dim].
/// @param log_sum_exp [batch, num_heads, seq] f32, for backward.
/// @throws Unsupported naming a head size.
void attention_forward(const AttentionDims& dims, const void* qkv, void* y, float* log_sum_exp,
                       const RandomStream* random, cudaStream_t stream);

/// Shapes are forward's, of a gradient those of the tensor that it belongs to.
struct AttentionBackwardOperands {
  const void* dy = nullptr;
  const void* qkv = nullptr;
  const void* y = nullptr;
  const float* log_sum_exp = nullptr;
  void* dqkv = nullptr;  ///< must not overlap an input
};
/// dqkv, overwritten.
/// @param workspace batch · num_heads · seq floats.
void attention_backward(const AttentionDims& dims, const AttentionBackwardOperands& operands,
                        const RandomStream* random, float* workspace, cudaStream_t stream);

}  // namespace strata::cuda
