#include "partition/recomputation.hpp"

#include <algorithm>
#include <set>

namespace strata {

std::vector<int> internal_tensors(const ModelGraph& graph, const Block& block) {
  std::set<int> internal;
  const int end = block.first_operator + block.num_operators;
  for (int o = 0; o < static_cast<int>(graph.operators.size()); ++o) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    const bool inside = o >= block.first_operator && o < end;
    if (inside) {
      internal.insert(op.outputs.begin(), op.outputs.end());
    } else {
      for (const int t : op.inputs) internal.erase(t);  // consumers follow producers
    }
  }
  // The last value of the model is read by nobody here, yet somebody wants it.
  if (end == static_cast<int>(graph.operators.size())) {
    internal.erase(graph.operators.back().outputs.front());
  }
  return {internal.begin(), internal.end()};
}

std::vector<int> operators_to_recompute(const ModelGraph& graph, const Block& block,
                                        const std::function<bool(int tensor)>& is_held) {
  std::set<int> needed;
  const int end = block.first_operator + block.num_operators;
  const auto need = [&](int tensor) {
    if (!is_held(tensor)) needed.insert(tensor);
  };
  for (int o = block.first_operator; o < end; ++o) {
    for (const int t : saved_for_backward(graph.operators[static_cast<std::size_t>(o)])) need(t);
  }
  std::vector<int> again;
  for (int o = end; o-- > block.first_operator;) {
    const Operator& op = graph.operators[static_cast<std::size_t>(o)];
    if (std::ranges::any_of(op.outputs, [&](int t) { return needed.contains(t); })) {
      again.push_back(o);
      for (const int t : op.inputs) need(t);
    }
  }
  std::ranges::reverse(again);
  return again;
}

std::vector<int> operators_to_recompute(const ModelGraph& graph, const Block& block) {
  const std::vector<int> internal = internal_tensors(graph, block);
  return operators_to_recompute(graph, block,
                                [&](int tensor) { return !std::ranges::binary_search(internal, tensor); });
}

}  // namespace strata
