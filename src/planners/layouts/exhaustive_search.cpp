#include "planners/layouts/exhaustive_search.hpp"

#include <fmt/format.h>

#include <limits>

#include "base/error.hpp"

namespace strata {
namespace {

/// Depth first with the cost of what is chosen so far; nothing is left out.
class Enumeration {
 public:
  Enumeration(const LayoutProblem& problem, SearchAnswer& answer)
      : problem_(problem), best_(answer), choices_(problem.variables.size(), 0), ending_(problem.variables.size()) {
    for (const Coupling& c : problem.couplings) ending_[c.second].push_back(&c);
  }

  void enumerate(std::size_t variable, double cost) {
    if (variable == choices_.size()) {
      best_.look(problem_.fits(choices_) ? cost : std::numeric_limits<double>::infinity(), choices_);
      return;
    }
    const std::vector<double>& own = *problem_.variables[variable].cost;
    for (std::size_t c = 0; c < own.size(); ++c) {
      choices_[variable] = static_cast<int>(c);
      double sum = cost + own[c];
      for (const Coupling* coupling : ending_[variable]) {
        sum += coupling->cost->at(static_cast<std::size_t>(choices_[coupling->first]), c);
      }
      enumerate(variable + 1, sum);
    }
  }

 private:
  const LayoutProblem& problem_;
  BestSoFar best_;
  std::vector<int> choices_;
  std::vector<std::vector<const Coupling*>> ending_;  ///< by variable: couplings whose second it is
};

}  // namespace

SearchAnswer search_exhaustively(const LayoutProblem& problem, std::int64_t most) {
  double strategies = 1.0;
  for (std::size_t v = 0; v < problem.variables.size(); ++v) strategies *= static_cast<double>(problem.num_choices(v));
  if (strategies > static_cast<double>(most)) {
    throw Unsupported(
        fmt::format("search = \"exhaustive\": {} layers to choose for have {:.3g} strategies; accepted: at "
                    "most {:.3g}; search = \"exact\" finds the same optimum",
                    problem.variables.size(), strategies, static_cast<double>(most)));
  }
  SearchAnswer answer;
  Enumeration(problem, answer).enumerate(0, 0.0);
  answer.lower_bound = answer.choices.empty() ? 0.0 : answer.cost;
  return answer;
}

}  // namespace strata
