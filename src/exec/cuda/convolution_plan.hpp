#pragma once

/// @file
/// A convolution, its bias and the ReLU behind it as a graph that cuDNN has one kernel for, and the choice among its
/// engines. Needs no GPU where the device is given as data.

#include <cstdint>

#include "exec/cuda/cudnn_graph.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

/// Names of the operands, where the graph runs.
enum class ConvolutionOperand : std::int64_t { x = 1, weight, bias, y };

/// What of @p dims keeps cuDNN's kernels for graphs from serving; empty where they do: they compute on tensor cores, of
/// which f32 is none, and move channels in vectors.
constexpr const char* fused_convolution_condition(const ConvolutionDims& d) {
  if (!d.bias || !d.relu) return "no bias and ReLU behind it";
  if (d.dtype != DType::bf16) return "not bf16";
  return d.in % 8 != 0 || d.out % 8 != 0 ? "channels are no multiples of 8" : "";
}

/// y = max(0, x * W + b), rounded once: the fastest, by cuDNN's own account, of the engines that fit.
class ConvolutionPlan {
 public:
  /// @throws Unsupported where no engine serves, with what cuDNN says of the last one.
  ConvolutionPlan(const PlanDevice& device, const ConvolutionDims& dims, bool deterministic,
                  std::int64_t most_workspace_bytes);

  cudnnBackendDescriptor_t get() const { return plan_.get(); }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  OperationGraph graph_;
  BackendDescriptor plan_{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace strata::cuda
