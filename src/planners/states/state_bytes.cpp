#include "planners/states/state_bytes.hpp"

#include <algorithm>

#include "base/ceil_div.hpp"
#include "partition/shards.hpp"

namespace strata {

StateBytes::StateBytes(const ModelGraph& graph, const Plan& plan) : plan_(plan) {
  for (const Parameter& p : graph.parameters) sizes_.push_back(p.num_elements());
}

std::int64_t StateBytes::parameters(const StateFactors& state) const {
  return size_of(plan_.dtypes.compute) * elements_held(state.p.total(), 1);
}

std::int64_t StateBytes::optimizer(const StateFactors& state) const {
  return optimizer_bytes_per_element(plan_) * elements_held(state.p.total(), state.os.total() / state.p.total());
}

std::int64_t StateBytes::elements_held(int parameter_ranks, int num_parts) const {
  if (num_parts == 1 || plan_.optimizer.sharding != "inter_tensor") {
    std::int64_t held = 0;
    for (const std::int64_t size : sizes_) held += ceil_div(ceil_div(size, parameter_ranks), num_parts);
    return held;
  }
  const auto [owner_of, is_new] = owners_.try_emplace(num_parts);
  if (is_new) owner_of->second = deal_largest_first(sizes_, num_parts);
  std::vector<std::int64_t> held(static_cast<std::size_t>(num_parts), 0);
  for (std::size_t p = 0; p < sizes_.size(); ++p) {
    held[static_cast<std::size_t>(owner_of->second[p])] += ceil_div(sizes_[p], parameter_ranks);
  }
  return *std::ranges::max_element(held);
}

}  // namespace strata
