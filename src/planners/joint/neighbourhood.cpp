#include "planners/joint/neighbourhood.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/at_once.hpp"
#include "base/infinity.hpp"
#include "planners/joint/by_few_parts.hpp"
#include "planners/joint/least_first.hpp"
#include "planners/joint/moves.hpp"

namespace strata {

/// What is quickly told of a plan that was simulated. Much of what that is off by it is off by for moves of the plan
/// too.
struct Neighbourhood::About {
  std::optional<double> of_few{}, of_even_vocabulary{};  ///< seconds
  double uncertain = 0.0;  ///< part of a step's seconds, by which moves may be faster than this tells
};

std::vector<AskedMove> Neighbourhood::moves(Dimension dimension, const KnownPlan& from, LeftOutBy left_out_by) {
  std::vector<AskedMove> asked;
  std::vector<Plan> plans;
  for (Move& move : moves_of(dimension, request_, from.plan, combinations_.all_degrees())) {
    if (from.fits() && move.saves_only_memory) continue;
    std::optional<Plan> plan = known_.in_space(std::move(move.plan));
    if (!plan || *plan == from.plan) continue;
    asked.push_back({.words = std::move(move.words)});
    plans.push_back(*std::move(plan));
  }
  if (!from.fits()) {
    ask_fitting(std::move(plans), infinity, 0.0, asked);
    return asked;
  }
  const double seconds = from.found.step_seconds;
  const About about = left_out_by == LeftOutBy::estimates ? about_plan(from) : About{};
  add_bounds(plans, seconds, about, asked);
  ask_fitting(std::move(plans), seconds, about.uncertain, asked);
  return asked;
}

Neighbourhood::About Neighbourhood::about_plan(const KnownPlan& from) const {
  const Evaluate& evaluate = *request_.evaluate;
  // A token more or less in the head of one rank, where other tensor ranks share the vocabulary.
  constexpr double uncertain_by_tokens = 1e-4;
  if (const std::optional<double> of_all_tokens = evaluate.seconds_of_few(from.plan, Tokens::all)) {
    return {.of_few = evaluate.seconds_of_few(from.plan, Tokens::that_divide),
            .uncertain = uncertainty_by_few_parts(*of_all_tokens, from.found.step_seconds)};
  }
  if (from.plan.stages.count == 1) return {};
  const std::optional<Evaluation> even = evaluate.at_least(from.plan);
  if (!even) return {};
  return {.of_even_vocabulary = even->step_seconds, .uncertain = uncertain_by_tokens};
}

/// What @p plans take and need at least, moves of a plan that takes @p seconds and fits, and what they take about as
/// far as @p about_from tells it of that plan; nothing of those that are known, or asked as quickly. How much those
/// need that take no less by their passes alone is not asked.
void Neighbourhood::add_bounds(const std::vector<Plan>& plans, double seconds, const About& about_from,
                               std::vector<AskedMove>& asked) const {
  at_once(plans.size(), static_cast<std::size_t>(request_.num_threads), [&](std::size_t m) {
    if (known_.has(plans[m])) return;
    Evaluation& bound = asked[m].at_least;
    bound.step_seconds = combinations_.seconds_of_passes(plans[m]);
    if (bound.step_seconds >= seconds) return;
    ByFewParts told = about_from.of_few ? by_few_parts(request_, plans[m]) : ByFewParts{};
    if (told.about_seconds || !told.least.feasible()) {
      told.least.step_seconds = bound.step_seconds;
      bound = std::move(told.least);
      if (told.about_seconds) asked[m].about_seconds = *told.about_seconds * seconds / *about_from.of_few;
      return;
    }
    std::optional<Evaluation> closer = request_.evaluate->at_least(plans[m]);
    if (!closer) return;
    if (about_from.of_even_vocabulary && plans[m].stages.count > 1) {
      asked[m].about_seconds = closer->step_seconds * seconds / *about_from.of_even_vocabulary;
    }
    closer->step_seconds = std::max(closer->step_seconds, bound.step_seconds);
    bound = *std::move(closer);
  });
}

/// Those whose bound says nothing at once, then the others by their bound, until none may be noticeably better than
/// the best so far. @param seconds of the plan that they are moves of. @param uncertain part of what they take about.
void Neighbourhood::ask_fitting(std::vector<Plan> plans, double seconds, double uncertain,
                                std::vector<AskedMove>& asked) {
  constexpr double not_noticeable = 1e-5;  // of a step's seconds
  constexpr double rounding = 1e-7;        // of sums of few parts and of all
  double best = seconds;
  const auto least = [&](std::size_t m) {
    return std::max(asked[m].at_least.step_seconds, asked[m].about_seconds.value_or(0.0));
  };
  const auto may_be_noticeably_better = [&](std::size_t m) {
    return std::max(asked[m].at_least.step_seconds, (1.0 - uncertain) * asked[m].about_seconds.value_or(0.0)) <
           (1.0 - not_noticeable) * best;
  };
  const auto changes_nothing = [&](const AskedMove& move) {
    return move.about_seconds && std::abs(*move.about_seconds - seconds) <= rounding * seconds;
  };
  std::vector<std::size_t> fitting;  // as far as bounds say
  for (std::size_t m = 0; m < plans.size(); ++m) {
    if (asked[m].at_least.feasible() && !changes_nothing(asked[m])) fitting.push_back(m);
  }
  ask_least_first(known_, std::move(plans), std::move(fitting), least, may_be_noticeably_better,
                  [&](std::size_t m, const KnownPlan* answer) {
                    asked[m].known = answer;
                    if (answer->fits()) best = std::min(best, answer->found.step_seconds);
                  });
}

}  // namespace strata
