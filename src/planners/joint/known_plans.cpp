#include "planners/joint/known_plans.hpp"

#include <utility>

#include "base/at_once.hpp"
#include "base/error.hpp"
#include "planners/joint/normal_form.hpp"
#include "planners/search/memory_first.hpp"

namespace strata {

bool is_better(const KnownPlan& a, const KnownPlan& b) {
  if (a.fits() != b.fits()) return a.fits();
  if (a.fits()) return a.seconds_per_sample() < b.seconds_per_sample();
  if (a.is_possible() != b.is_possible()) return a.is_possible();
  return a.found.peak_bytes < b.found.peak_bytes;
}

const KnownPlan& KnownPlans::ask(Plan plan) {
  std::vector<Plan> one;
  one.push_back(std::move(plan));
  return *ask(std::move(one)).front();
}

std::vector<const KnownPlan*> KnownPlans::ask(std::vector<Plan> plans) {
  std::vector<const KnownPlan*> answers;
  std::vector<KnownPlan*> asked;
  for (Plan& plan : plans) {
    plan = comparable(std::move(plan));
    const auto [known, is_new] = by_text_.try_emplace(to_text(plan), nullptr);
    if (is_new) {
      KnownPlan& added = plans_.emplace_back(KnownPlan{.plan = std::move(plan), .found = {}});
      asked.push_back(&added);
      known->second = &added;
    }
    answers.push_back(known->second);
  }
  at_once(asked.size(), static_cast<std::size_t>(request_.num_threads),
          [&](std::size_t i) { asked[i]->found = evaluated(asked[i]->plan); });
  return answers;
}

bool KnownPlans::has(Plan plan) const { return by_text_.contains(to_text(comparable(std::move(plan)))); }

Plan KnownPlans::comparable(Plan plan) const {
  plan.strategy = request_.base.strategy;
  plan.why = {};
  return in_normal_form(std::move(plan), request_.graph);
}

Evaluation KnownPlans::evaluated(const Plan& plan) const {
  try {
    verify(plan, request_.graph);
  } catch (const UserError& broken) {
    return {.missing = broken.what()};
  }
  return memory_first(*request_.evaluate, plan);
}

}  // namespace strata
