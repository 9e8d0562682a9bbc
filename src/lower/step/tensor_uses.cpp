#include "lower/step/tensor_uses.hpp"

#include <algorithm>
#include <cstddef>

#include "ir/model/backward_reads.hpp"

namespace strata {

TensorUses::TensorUses(const ModelGraph& graph, std::span<const RecomputedRegion> regions)
    : needs_gradient(tensors_with_gradient(graph)),
      num_consumers(graph.tensors.size(), 0),
      num_saved_for(graph.tensors.size(), 0) {
  for (const Tensor& tensor : graph.tensors) is_activation.push_back(tensor.role == TensorRole::activation);
  for (const Operator& op : graph.operators) {
    for (const int t : op.inputs) ++num_consumers[static_cast<std::size_t>(t)];
    for (const int t : saved_for_backward(op)) ++num_saved_for[static_cast<std::size_t>(t)];
  }
  for (const RecomputedRegion& region : regions) {
    for (const int o : region.runs_again) {
      for (const int t : graph.operators[static_cast<std::size_t>(o)].inputs) {
        if (!std::ranges::binary_search(region.forgotten, t)) ++num_saved_for[static_cast<std::size_t>(t)];
      }
    }
  }
}

bool TensorUses::has_one_reader(int tensor, int num_saved) const {
  const auto t = static_cast<std::size_t>(tensor);
  return is_activation[t] && num_consumers[t] == 1 && num_saved_for[t] == num_saved;
}

}  // namespace strata
