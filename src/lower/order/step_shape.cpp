#include "lower/order/step_shape.hpp"

#include <algorithm>

namespace strata {

StepShape step_shape(const Plan& plan, const ModelGraph& graph, std::span<const OperatorDecision> decisions,
                     std::span<const Stage> stages) {
  StepShape shape{.micro_batches = plan.schedule.micro_batches,
                  .sub_batches = plan.schedule.sub_batches,
                  .updates_in_backward = plan.overlap.update == "backward"};
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const int first = stages[s].first_operator;
    for (int o = first; o < stages[s].end(); ++o) {
      const int block = graph.operators[static_cast<std::size_t>(o)].block;
      if (o == first || block != graph.operators[static_cast<std::size_t>(o) - 1].block) {
        const bool recomputed = block >= 0 && decisions[static_cast<std::size_t>(o)].recompute == Recompute::block;
        shape.segments.push_back({.stage = static_cast<int>(s), .first_operator = o, .recomputed = recomputed});
      }
      ++shape.segments.back().num_operators;
    }
  }
  for (Segment& segment : shape.segments) {
    for (int o = segment.first_operator; o < segment.end(); ++o) {
      for (const int p : graph.operators[static_cast<std::size_t>(o)].parameters) segment.parameters.push_back(p);
    }
    std::ranges::sort(segment.parameters);
    const auto [again, end] = std::ranges::unique(segment.parameters);
    segment.parameters.erase(again, end);
  }
  return shape;
}

}  // namespace strata
