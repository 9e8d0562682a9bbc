#pragma once

/// @file
/// Multi-head attention core: out = dropout(softmax(q·kᵀ / √head_dim, causal or not)) · v, and its gradients. Scores
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

/// Scores, softmax and sums are f32. In bf16 the probabilities (and in backward the gradients of the scores) are
/// rounded to bf16 before they are multiplied, on processors with AMX; elsewhere they stay f32.
/// @param log_sum_exp [batch, num_heads, seq] f32, out: log Σⱼ exp(scoreᵢⱼ), for backward.
/// @param random read where dropout_probability > 0.
/// @param workspace what the sibling function says, 64-byte aligned; contents are lost.
/// Equal inputs give equal bits for any number of threads and any split of the batch, or of groups of heads, over
/// calls.
void attention_forward(const AttentionDims& dims, ConstTokenRows q, ConstTokenRows k, ConstTokenRows v, TokenRows out,
                       float* log_sum_exp, RandomStream random, std::span<std::byte> workspace);

/// Gradients, overwritten: dq, dk, dv from d_out, with what forward was given and what it wrote.
/// dq, dk and dv may be the memory of q, k and v: every value is read before its gradient is written.
void attention_backward(const AttentionDims& dims, ConstTokenRows q, ConstTokenRows k, ConstTokenRows v,
                        ConstTokenRows out, ConstTokenRows d_out, const float* log_sum_exp, TokenRows dq, TokenRows dk,
                        TokenRows dv, RandomStream random, std::span<std::byte> workspace);

}  // namespace strata::cpu
