#include "exec/cuda/convolution_plan.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/error.hpp"

namespace strata::cuda {
namespace {

using Tensor = OperationGraph::Tensor;
using Extents = OperationGraph::Extents;

/// Extents stand in the order n, c, h, w whatever the memory, in which channels are the fastest.
constexpr Extents channels_last(const Extents& n) { return {n[1] * n[2] * n[3], 1, n[3] * n[1], n[1]}; }

void add_operations(OperationGraph& graph, const ConvolutionDims& d) {
  const auto in_memory = [&](ConvolutionOperand operand, const Extents& extents) {
    return graph.in_memory(static_cast<std::int64_t>(operand), bf16_type, extents, channels_last(extents));
  };
  const Extents of_y = {d.images, d.out, d.out_height(), d.out_width()};
  const Tensor x = in_memory(ConvolutionOperand::x, {d.images, d.in, d.height, d.width});
  const Tensor weight = in_memory(ConvolutionOperand::weight, {d.out, d.in, d.kernel_h, d.kernel_w});
  const Tensor bias = in_memory(ConvolutionOperand::bias, {1, d.out, 1, 1});
  const Tensor product = graph.between(f32_type, of_y, channels_last(of_y));
  graph.convolution(x, weight, product, d.padding, d.stride);
  const Tensor sum = graph.between(f32_type, of_y, channels_last(of_y));
  graph.pointwise(CUDNN_POINTWISE_ADD, product, bias, sum);
  graph.pointwise(CUDNN_POINTWISE_RELU_FWD, sum, in_memory(ConvolutionOperand::y, of_y));
}

}  // namespace

ConvolutionPlan::ConvolutionPlan(const PlanDevice& device, const ConvolutionDims& d, bool deterministic,
                                 std::int64_t most_workspace_bytes) {
  add_operations(graph_, d);
  const BackendDescriptor graph = graph_.finish(device.handle);
  auto [engine, error] = fastest_engine(device, graph, deterministic, most_workspace_bytes);
  if (engine) {
    plan_ = std::move(engine->plan);
    workspace_bytes_ = engine->workspace_bytes;
    return;
  }
  throw Unsupported(fmt::format(
      "cuDNN has no{} convolution with bias and ReLU of {} x {}x{}x{} to {} channels in {} within {} bytes: {}",
      deterministic ? " deterministic" : "", d.images, d.height, d.width, d.in, d.out, to_string(d.dtype),
      most_workspace_bytes, error));
}

}  // namespace strata::cuda
