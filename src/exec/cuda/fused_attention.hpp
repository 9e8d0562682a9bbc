#pragma once

/// @file
/// cuDNN's attention on a fused qkv, scores never in memory: the contract of kernels/attention, in bf16. Which
/// probabilities are dropped is written to the workspace before, by global index. The engine is chosen when the call is
/// bound, among those that fit the workspace.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

#include "exec/cuda/attention_plan.hpp"
#include "exec/cuda/libraries.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

/// Device addresses, multiples of 16 bytes. Shapes are kernels/attention's.
struct AttentionAddresses {
  std::byte* qkv = nullptr;
  std::byte* y = nullptr;        ///< read by backward
  float* log_sum_exp = nullptr;  ///< likewise
  std::byte* dy = nullptr;       ///< of backward
  std::byte* dqkv = nullptr;     ///< of backward, overwritten
};

class FusedAttention {
 public:
  /// @param dims that cudnn_attention_condition has nothing against.
  /// @param workspace of the mask and cudnn_forward_workspace_bytes, or of the parts of cudnn_backward_workspace; the
  /// mask comes first, and run() reads it.
  /// @throws Unsupported where the library is too old, or no engine serves.
  FusedAttention(Libraries& libraries, AttentionPass pass, const AttentionDims& dims,
                 const AttentionAddresses& addresses, std::span<std::byte> workspace);
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  /// For a stream of a graph that is being recorded too: we allocate nothing, and cuDNN says that its engines do not.
  void run(cudaStream_t stream) const;

 private:
  struct Call;
  std::unique_ptr<const Call> call_;
};

}  // namespace strata::cuda
