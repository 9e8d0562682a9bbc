#include "planners/layouts/coordinate_descent.hpp"

#include "planners/layouts/random_search.hpp"

namespace strata {

double descend(const LayoutProblem& problem, std::vector<int>& choices, BestSoFar& best) {
  double cost = problem.cost_within(choices);
  best.look(cost, choices);
  for (bool changes = true; changes;) {
    changes = false;
    for (std::size_t v = 0; v < choices.size(); ++v) {
      int kept = choices[v];
      for (int c = 0; c < static_cast<int>(problem.num_choices(v)); ++c) {
        if (c == kept) continue;
        choices[v] = c;
        const double tried = problem.cost_within(choices);
        best.look(tried, choices);
        if (tried < cost) {
          cost = tried;
          kept = c;
          changes = true;
        }
      }
      choices[v] = kept;
    }
  }
  return cost;
}

SearchAnswer search_coordinate_descent(const LayoutProblem& problem, std::int64_t restarts, std::uint64_t seed) {
  SearchAnswer answer;
  BestSoFar best(answer);
  Draws draws(seed, "layouts: coordinate descent");
  for (std::int64_t r = 0; r < restarts; ++r) {
    std::vector<int> choices = draws.strategy(problem);
    descend(problem, choices, best);
  }
  return answer;
}

}  // namespace strata
