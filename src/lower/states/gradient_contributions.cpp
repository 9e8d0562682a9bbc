#include "lower/states/gradient_contributions.hpp"

#include <cstddef>
#include <utility>

namespace strata {

std::vector<GradientContribution> gradient_contributions(const StepOrder& order, const ModelGraph& graph) {
  const auto num_micro_batches = static_cast<std::size_t>(order.shape.micro_batches);
  std::vector<GradientContribution> all;
  std::vector<bool> has_begun(graph.parameters.size() * num_micro_batches, false);
  const auto key = [&](const GradientContribution& c) {
    return static_cast<std::size_t>(c.parameter) * num_micro_batches + static_cast<std::size_t>(c.micro_batch);
  };
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const OrderItem& item = order.items[i];
    if (item.pass != Pass::backward) continue;
    const Segment& segment = order.shape.segments[static_cast<std::size_t>(item.segment)];
    for (int o = segment.end(); o-- > segment.first_operator;) {
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) {
        all.push_back({.item = static_cast<int>(i), .op = o, .parameter = p, .micro_batch = item.micro_batch});
        all.back().first_of_micro_batch = !has_begun[key(all.back())];
        has_begun[key(all.back())] = true;
      }
    }
  }
  std::vector<bool> follows_in_micro_batch(has_begun.size(), false);
  std::vector<bool> follows(graph.parameters.size(), false);
  std::vector<bool> any_follows(num_micro_batches, false);
  for (std::size_t i = all.size(); i-- > 0;) {
    GradientContribution& c = all[i];
    const auto p = static_cast<std::size_t>(c.parameter);
    const auto m = static_cast<std::size_t>(c.micro_batch);
    c.last_of_micro_batch = !follows_in_micro_batch[key(c)];
    c.last = !follows[p];
    c.ends_micro_batch = !any_follows[m];
    follows_in_micro_batch[key(c)] = follows[p] = any_follows[m] = true;
  }
  return all;
}

}  // namespace strata
