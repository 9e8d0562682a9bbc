#include "planners/layouts/layout_problem.hpp"

#include <map>
#include <memory>
#include <utility>

#include "base/infinity.hpp"

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
  return fits(choices) ? cost(choices) : infinity;
}

LayoutProblem priced(const LayoutProblem& problem, double scale, double price) {
  LayoutProblem result = problem;
  std::map<std::pair<const void*, const void*>, std::shared_ptr<const std::vector<double>>> made;
  const auto scaled = [&](double cost) { return cost == infinity ? infinity : scale * cost; };
  for (SearchVariable& variable : result.variables) {
    auto& shared = made[{variable.cost.get(), variable.bytes.get()}];
    if (!shared) {
      std::vector<double> sum;
      for (std::size_t c = 0; c < variable.cost->size(); ++c) {
        const double bytes = variable.bytes ? static_cast<double>((*variable.bytes)[c]) : 0.0;
        sum.push_back(scaled((*variable.cost)[c]) + price * bytes);
      }
      shared = std::make_shared<const std::vector<double>>(std::move(sum));
    }
    variable.cost = shared;
  }
  if (scale == 1.0) return result;
  std::map<const CostTable*, std::shared_ptr<const CostTable>> tables;
  for (Coupling& coupling : result.couplings) {
    auto& shared = tables[coupling.cost.get()];
    if (!shared) {
      CostTable table = *coupling.cost;
      for (double& value : table.values) value = scaled(value);
      shared = std::make_shared<const CostTable>(std::move(table));
    }
    coupling.cost = shared;
  }
  return result;
}

void BestSoFar::look(double cost, std::span<const int> choices) {
  ++answer_.evaluations;
  if (cost == infinity) return;
  if (!answer_.choices.empty() && cost >= answer_.cost) return;
  answer_.cost = cost;
  answer_.choices.assign(choices.begin(), choices.end());
  answer_.trace.push_back({answer_.evaluations, cost});
}

}  // namespace strata
