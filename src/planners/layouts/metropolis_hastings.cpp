#include "planners/layouts/metropolis_hastings.hpp"

#include <cmath>

#include "base/infinity.hpp"
#include "planners/layouts/random_search.hpp"

namespace strata {

SearchAnswer search_metropolis_hastings(const LayoutProblem& problem, double temperature, std::int64_t proposals,
                                        std::uint64_t seed) {
  SearchAnswer answer;
  BestSoFar best(answer);
  Draws draws(seed, "layouts: metropolis-hastings");
  std::vector<int> choices = draws.strategy(problem);
  double cost = problem.cost_within(choices), first = cost;
  best.look(cost, choices);
  std::int64_t accepted = 0;
  while (answer.evaluations < proposals) {
    const std::size_t variable = draws.below(choices.size());
    const int before = choices[variable];
    choices[variable] = static_cast<int>(draws.below(problem.num_choices(variable)));
    const double proposed = problem.cost_within(choices);
    best.look(proposed, choices);
    // Where the walk begins over the capacity it wanders until it is below, which then is the first.
    const double chance = cost == infinity ? 1.0 : std::exp((cost - proposed) / (temperature * first));
    if (draws.uniform() < chance) {
      ++accepted;
      cost = proposed;
      if (first == infinity || first == 0.0) first = proposed;
    } else {
      choices[variable] = before;
    }
  }
  if (answer.evaluations > 1) {
    answer.acceptance_rate = static_cast<double>(accepted) / static_cast<double>(answer.evaluations - 1);
  }
  return answer;
}

}  // namespace strata
