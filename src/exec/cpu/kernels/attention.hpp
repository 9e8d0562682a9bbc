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

namespace strata::cpu {

/// Sizes and options of a call; equal in forward and backward.
struct AttentionDims {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads =
      0;  ///< divides num_heads; query head h reads key and value head h / (num_heads / num_kv_heads)
  std::int64_t head_dim = 0;
  DType dtype = DType::f32;  ///< of q, k, v, out and their gradients: f32 or bf16
  bool causal = true;        ///< query i sees keys 0 … i; otherwise all

  float dropout_probability = 0.0F;  ///< of each probability, in [0, 1)
  // The mask's element (sample, head, i, j) has the index ((sample · total_heads + head) · seq + i) · seq + j, so that
  // no split of the batch or of the heads over calls and ranks changes it.
  std::int64_t first_sample = 0;  ///< global index of the first sample of this call
  std::int64_t first_head = 0;    ///< global index of the first query head of this call
  std::int64_t total_heads = 0;   ///< query heads of the whole operator; 0: num_heads
};

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
