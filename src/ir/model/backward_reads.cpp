#include "ir/model/backward_reads.hpp"

#include <algorithm>

namespace strata {

std::vector<bool> tensors_with_gradient(const ModelGraph& graph) {
  std::vector<bool> has(graph.tensors.size(), false);
  for (const Operator& op : graph.operators) {
    const bool depends = !op.parameters.empty() ||
                         std::ranges::any_of(op.inputs, [&](int t) { return has[static_cast<std::size_t>(t)]; });
    for (const int t : op.outputs) {
      has[static_cast<std::size_t>(t)] =
          depends && graph.tensors[static_cast<std::size_t>(t)].role == TensorRole::activation;
    }
  }
  return has;
}

std::vector<int> weights_read_by_backward(const Operator& op, bool input_has_gradient) {
  switch (op.kind) {
    case OperatorKind::linear:
    case OperatorKind::convolution:
      if (!input_has_gradient) return {};
      return {op.parameters.front()};
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
    case OperatorKind::batch_norm: return {op.parameters.front()};
    default: return {};
  }
}

}  // namespace strata
