#include "planners/layouts/exact_layouts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "planners/layouts/coordinate_descent.hpp"
#include "planners/search/branch_and_bound.hpp"
#include "planners/search/elimination.hpp"

namespace strata {
namespace {

struct Point {
  std::vector<int> choices;
  double cost = 0.0;
  double bytes = 0.0;
};
Point point_of(const LayoutProblem& problem, std::vector<int> choices) {
  const double cost = problem.cost(choices);
  const auto bytes = static_cast<double>(problem.bytes(choices));
  return {std::move(choices), cost, bytes};
}

}  // namespace

std::vector<int> smallest(const LayoutProblem& problem) { return cheapest(priced(problem, 0.0, 1.0)); }

SearchAnswer search_exactly(const LayoutProblem& problem) {
  SearchAnswer answer;
  std::vector<int> unlimited = cheapest(problem);
  if (unlimited.empty()) return answer;
  if (problem.fits(unlimited)) {
    answer.cost = answer.lower_bound = problem.cost(unlimited);
    answer.choices = std::move(unlimited);
    return answer;
  }
  answer.binds_capacity = true;
  const auto capacity = static_cast<double>(problem.capacity_bytes);
  Point fitting = point_of(problem, smallest(problem)), exceeding = point_of(problem, std::move(unlimited));
  if (fitting.bytes > capacity) return answer;
  answer.lower_bound = exceeding.cost;
  // Each price is that at which the two cost the same: whatever is cheaper at it lies between them.
  double price = 0.0;
  for (;;) {
    price = (fitting.cost - exceeding.cost) / (exceeding.bytes - fitting.bytes);
    Point between = point_of(problem, cheapest(priced(problem, 1.0, price)));
    const double value = between.cost + price * between.bytes;
    answer.lower_bound = std::max(answer.lower_bound, value - price * capacity);
    const double edge = exceeding.cost + price * exceeding.bytes;
    if (value >= edge - 1e-12 * std::abs(edge)) break;
    (between.bytes <= capacity ? fitting : exceeding) = std::move(between);
  }
  BestSoFar best(answer);
  descend(problem, fitting.choices, best);
  answer.evaluations = 0;
  answer.trace.clear();
  answer.lower_bound = std::min(answer.lower_bound, answer.cost);
  prove_cheapest(problem, std::array{price, price / 3.0, 3.0 * price}, answer);
  return answer;
}

}  // namespace strata
