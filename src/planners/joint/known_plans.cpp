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

bool is_within(double times, const KnownPlan& known, const KnownPlan& best) {
  return known.fits() && known.seconds_per_sample() <= times * best.seconds_per_sample();
}

const KnownPlan* KnownPlans::ask(Plan plan) {
  std::vector<Plan> one;
  one.push_back(std::move(plan));
  return ask(std::move(one)).front();
}

std::vector<const KnownPlan*> KnownPlans::ask(std::vector<Plan> plans) {
  std::vector<const KnownPlan*> answers;
  std::vector<KnownPlan*> asked;
  for (Plan& plan : plans) {
    std::optional<Plan> inside = in_space(std::move(plan));
    if (!inside) {
      answers.push_back(nullptr);
      continue;
    }
    const auto [known, is_new] = by_text_.try_emplace(to_text(*inside), nullptr);
    if (is_new) {
      KnownPlan& added = plans_.emplace_back(KnownPlan{.plan = *std::move(inside), .found = {}});
      asked.push_back(&added);
      known->second = &added;
    }
    answers.push_back(known->second);
  }
  at_once(asked.size(), static_cast<std::size_t>(request_.num_threads),
          [&](std::size_t i) { asked[i]->found = evaluated(asked[i]->plan); });
  for (const KnownPlan* answer : answers) {
    if (answer != nullptr && (best_ == nullptr || is_better(*answer, *best_))) best_ = answer;
  }
  return answers;
}

std::optional<Plan> KnownPlans::in_space(Plan plan) const {
  std::optional<Plan> inside = dimensions_.within(std::move(plan), request_.base);
  if (!inside) return std::nullopt;
  inside->strategy = request_.base.strategy;
  inside->why = {};
  return in_normal_form(*std::move(inside), request_.graph);
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
