#pragma once

/// @file
/// Attention as graphs that cuDNN recognises and runs as one kernel or a few, scores never in memory, and the choice
/// among its engines. The operations are those that NVIDIA's cudnn-frontend makes of its sdpa nodes, for a cuDNN that
/// has no mask in its one attention operation (before 9.21). Needs no GPU where the device is given as data.

#include <cudnn.h>

#include <cstdint>

#include "exec/cuda/cudnn_graph.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

enum class AttentionPass : std::uint8_t { forward, backward };

/// Names of the operands of both graphs, where they run.
enum class AttentionOperand : std::int64_t {
  q = 1,
  k,
  v,
  y,
  log_sum_exp,
  dy,
  dq,
  dk,
  dv,
  output_products,  ///< Σ dy · y, scratch
  query_sums,       ///< dq in f32, scratch; none where deterministic
  scale,            ///< number: 1 / √head_dim
  one,              ///< number: 1
  minus_infinity,   ///< number: of scores that causality hides
  dropout_mask,     ///< see dropout_mask_bytes(); none without dropout
  dropout_scale,    ///< number: 1 / the share of probabilities that dropout keeps; none without dropout
};

/// The fastest, by cuDNN's own account, of the engines that fit.
class AttentionPlan {
 public:
  /// @param most_workspace_bytes of the library's part of the workspace.
  /// @throws Unsupported where no engine serves, with what cuDNN says of the last one.
  AttentionPlan(const PlanDevice& device, AttentionPass pass, const AttentionDims& dims, bool deterministic,
                std::int64_t most_workspace_bytes);

  cudnnBackendDescriptor_t get() const { return plan_.get(); }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  OperationGraph graph_;
  BackendDescriptor plan_{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace strata::cuda
