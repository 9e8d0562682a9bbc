#include "planners/layouts/layout_problem.hpp"

#include <limits>

namespace strata {

double LayoutProblem::cost(std::span<const int> choices) const {
  const auto chosen = [&](std::size_t v) { return static_cast<std::size_t>(choices[v]); };
  double sum = 0.0;
  for (std::size_t v = 0; v < variables.size(); ++v) sum += (*variables[v].cost)[chosen(v)];
  for (const Coupling& c : couplings) sum += c.cost->at(chosen(c.first), chosen(c.second));
  return sum;
}

std::int64_t LayoutProblem::bytes(std::span<const int> choices) const {
  std::int64_t sum = 0;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    if (variables[v].bytes) sum += (*variables[v].bytes)[static_cast<std::size_t>(choices[v])];
  }
  return sum;
}

double LayoutProblem::cost_within(std::span<const int> choices) const {
  return fits(choices) ? cost(choices) : std::numeric_limits<double>::infinity();
}

void BestSoFar::look(double cost, std::span<const int> choices) {
  ++answer_.evaluations;
  if (cost == std::numeric_limits<double>::infinity()) return;
  if (!answer_.choices.empty() && cost >= answer_.cost) return;
  answer_.cost = cost;
  answer_.choices.assign(choices.begin(), choices.end());
  answer_.trace.push_back({answer_.evaluations, cost});
}

}  // namespace strata
