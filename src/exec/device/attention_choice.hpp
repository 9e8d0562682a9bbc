#pragma once

/// @file
/// cuDNN's fused attention or our kernels: pure functions of the call, so that lowering, which plans the workspace, and
/// binding, which runs it, decide alike.

#include <cstdint>
#include <string>

#include "base/ceil_div.hpp"
#include "exec/device/numerics.hpp"
#include "exec/kernel_dims.hpp"
#include "ir/program/program.hpp"

namespace strata::cuda {

/// The largest head that cuDNN's backward takes on every GPU since Ampere.
constexpr std::int64_t cudnn_max_head_dim = 128;

/// What of @p dims keeps cuDNN's attention from serving, with its numbers; empty where it serves.
std::string cudnn_attention_condition(const AttentionDims& dims);

/// @throws Unsupported where cuDNN's attention is asked for by name and cannot serve.
bool uses_cudnn_attention(const AttentionDims& dims, const Numerics& numerics);

/// Whose kernels compute the attention of @p program: "cudnn", "strata", "cudnn and strata"; empty where there is none.
std::string attention_of(const Program& program, const Numerics& numerics);

/// Of cuDNN's attention with dropout: the mask [batch, num_heads, seq, seq] in bf16, 1 where a probability is kept, for
/// it has random numbers of its own and not by global index. Rows are this many elements apart, which whole vectors
/// are.
constexpr std::int64_t dropout_mask_row(const AttentionDims& d) { return round_up(d.seq, std::int64_t{8}); }
/// 0 without dropout.
std::int64_t dropout_mask_bytes(const AttentionDims& dims);
/// What the masks of one repetition of @p program's body move: each is made and read, by forward and again by backward.
std::int64_t dropout_mask_traffic(const Program& program, const Numerics& numerics);

/// The parts of the workspace of cuDNN's backward. cuDNN is held to @ref library, of which an engine may leave some:
/// its backward for Ampere keeps the f32 sums of dq twice, that for Hopper once.
struct CudnnBackwardWorkspace {
  std::int64_t dropout_mask = 0;     ///< see dropout_mask_bytes()
  std::int64_t output_products = 0;  ///< Σ dy · y of each head and query, f32
  std::int64_t query_sums = 0;       ///< dq in f32, to which thread blocks add in any order; none where deterministic
  std::int64_t library = 0;
  std::int64_t total() const { return dropout_mask + output_products + query_sums + library; }
};
CudnnBackwardWorkspace cudnn_backward_workspace(const AttentionDims& dims, bool deterministic);
/// The library's part of that of cuDNN's forward, which keeps no more than a few words in it; the mask comes before it.
constexpr std::int64_t cudnn_forward_workspace_bytes = 4096;

}  // namespace strata::cuda
