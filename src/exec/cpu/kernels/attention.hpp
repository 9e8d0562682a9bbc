#pragma once

/// @file
/// Multi-head attention core: y = dropout(softmax(q·kᵀ / √head_dim, causal or not)) · v, and its gradients. Scores
/// exist for one block of queries of one head at a time; forward keeps the log-sum-exp of each row, and backward
/// computes the probabilities again from it. Source: Dao, "FlashAttention-2", 2023, for the saved statistics and the
/// gradient formulas; blocks are sized for caches here.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "base/random.hpp"
#include "exec/cpu/kernels/token_rows.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cpu {

using strata::AttentionDims;

/// Bytes of workspace; proportional to the OpenMP threads at the time of the call and to seq · head_dim.
std::int64_t attention_forward_workspace_bytes(const AttentionDims& dims);
std::int64_t attention_backward_workspace_bytes(const AttentionDims& dims);

/// What forward reads and writes. q and y have num_heads heads, k and v num_kv_heads.
struct AttentionForwardOperands {
  ConstTokenRows q;
  ConstTokenRows k;
  ConstTokenRows v;
  TokenRows y;
  float* log_sum_exp = nullptr;  ///< [batch, num_heads, seq], out: log Σⱼ exp(scoreᵢⱼ), for backward
};

/// Scores, softmax and sums are f32. In bf16 the probabilities (and in backward the gradients of the scores) are
/// rounded to bf16 before they are multiplied, on processors with AMX or AVX512_BF16; elsewhere they stay f32.
/// @param random read where dropout_probability > 0.
/// @param workspace what the sibling function says, 64-byte aligned; contents are lost.
/// Equal inputs give equal bits for any number of threads and any split of the batch, or of groups of heads, over
/// calls.
void attention_forward(const AttentionDims& dims, const AttentionForwardOperands& operands, RandomStream random,
                       std::span<std::byte> workspace);

/// What forward was given and what it wrote, the gradient of y, and the gradients that follow from it. dq, dk and dv
/// may be the memory of q, k and v: every value is read before its gradient is written.
struct AttentionBackwardOperands {
  ConstTokenRows dy;
  ConstTokenRows q;
  ConstTokenRows k;
  ConstTokenRows v;
  ConstTokenRows y;
  const float* log_sum_exp = nullptr;  ///< [batch, num_heads, seq]
  TokenRows dq;
  TokenRows dk;
  TokenRows dv;
};

/// dq, dk and dv, overwritten.
void attention_backward(const AttentionDims& dims, const AttentionBackwardOperands& operands, RandomStream random,
                        std::span<std::byte> workspace);

}  // namespace strata::cpu
