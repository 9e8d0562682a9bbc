#include "planners/layouts/random_search.hpp"

namespace strata {

std::vector<int> Draws::strategy(const LayoutProblem& problem) {
  std::vector<int> choices;
  for (std::size_t v = 0; v < problem.variables.size(); ++v) {
    choices.push_back(static_cast<int>(below(problem.num_choices(v))));
  }
  return choices;
}

SearchAnswer search_at_random(const LayoutProblem& problem, std::int64_t proposals, std::uint64_t seed) {
  SearchAnswer answer;
  BestSoFar best(answer);
  Draws draws(seed, "layouts: random");
  while (answer.evaluations < proposals) {
    const std::vector<int> choices = draws.strategy(problem);
    best.look(problem.cost_within(choices), choices);
  }
  return answer;
}

}  // namespace strata
