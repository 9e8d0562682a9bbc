#include "planners/operators/backward_moments.hpp"

namespace strata {
namespace {

std::int64_t element_bytes(TensorRole role, DType compute) {
  switch (role) {
    case TensorRole::activation:
    case TensorRole::image: return size_of(compute);
    case TensorRole::statistic:
    case TensorRole::loss:
    case TensorRole::tokens:
    case TensorRole::targets: return 4;
    case TensorRole::indices: return 1;
  }
  return 0;
}

/// Of one sample.
std::int64_t tensor_bytes(const ModelGraph& graph, int tensor, DType compute) {
  const Tensor& t = graph.tensors[static_cast<std::size_t>(tensor)];
  return t.elements_per_sample() * element_bytes(t.role, compute);
}

/// Of one sample: the gradients of an operator's inputs and outputs. That of the logits is left where they were.
std::int64_t gradient_bytes_around(const ModelGraph& graph, const Operator& op, DType compute) {
  if (op.kind == OperatorKind::cross_entropy) return 0;
  std::int64_t sum = 0;
  for (const std::vector<int>* tensors : {&op.inputs, &op.outputs}) {
    for (const int t : *tensors) {
      const bool has_gradient = graph.tensors[static_cast<std::size_t>(t)].role == TensorRole::activation;
      sum += has_gradient ? tensor_bytes(graph, t, compute) : 0;
    }
  }
  return sum;
}

}  // namespace

std::vector<BackwardMoment> backward_moments(const ModelGraph& graph, DType compute, Recompute recompute,
                                             std::int64_t num_samples) {
  const int num_operators = static_cast<int>(graph.operators.size());
  constexpr int never = -1;
  // By tensor: the operator whose backward is the last to read it, which is the first in the graph.
  std::vector<int> kept_until(graph.tensors.size(), never);
  std::vector<int> recomputed_until(graph.tensors.size(), never);
  std::vector<int> produced_in(graph.tensors.size(), never);  // block
  for (int o = 0; o < num_operators; ++o) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    for (const int t : op.outputs) produced_in[static_cast<std::size_t>(t)] = op.block;
    const auto need = [&](int tensor, int until) {
      const auto t = static_cast<std::size_t>(tensor);
      const bool again = recomputes_blocks(recompute) && op.block >= 0 && produced_in[t] == op.block;
      int& last = again ? recomputed_until[t] : kept_until[t];
      if (last == never) last = until;
    };
    for (const int t : saved_for_backward(op)) need(t, o);
    if (recomputes_blocks(recompute) && op.block >= 0) {
      for (const int t : op.inputs) {
        if (produced_in[static_cast<std::size_t>(t)] != op.block) {
          need(t, graph.blocks[static_cast<std::size_t>(op.block)].first_operator);
        }
      }
    }
  }

  std::vector<BackwardMoment> moments(graph.operators.size());
  for (int o = num_operators; o-- > 0;) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    BackwardMoment& moment = moments[static_cast<std::size_t>(o)];
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      const bool kept = kept_until[t] != never && kept_until[t] <= o;
      const bool again = recomputed_until[t] != never && recomputed_until[t] <= o && produced_in[t] == op.block;
      if (kept || again) moment.activations += num_samples * tensor_bytes(graph, static_cast<int>(t), compute);
    }
    moment.activation_gradients = num_samples * gradient_bytes_around(graph, op, compute);
  }
  return moments;
}

}  // namespace strata
