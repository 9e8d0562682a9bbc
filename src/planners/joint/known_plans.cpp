#include "planners/joint/known_plans.hpp"

#include <utility>

#include "base/error.hpp"

namespace strata {

bool is_better(const KnownPlan& a, const KnownPlan& b) {
  if (a.fits() != b.fits()) return a.fits();
  if (a.fits()) return a.seconds_per_sample() < b.seconds_per_sample();
  if (a.is_possible() != b.is_possible()) return a.is_possible();
  return a.found.peak_bytes < b.found.peak_bytes;
}

const KnownPlan& KnownPlans::ask(Plan plan) {
  plan.strategy = request_.base.strategy;
  plan.why = {};
  const auto [known, is_new] = by_text_.try_emplace(to_text(plan), nullptr);
  if (is_new) {
    Evaluation found = evaluated(plan);
    known->second = &plans_.emplace_back(KnownPlan{.plan = std::move(plan), .found = std::move(found)});
  }
  return *known->second;
}

Evaluation KnownPlans::evaluated(const Plan& plan) {
  try {
    verify(plan, request_.graph);
  } catch (const UserError& broken) {
    return {.missing = broken.what()};
  }
  if (plan.device_capacity_bytes > 0) {
    Evaluation least = request_.evaluate->least_memory(plan);
    if (!least.feasible()) return least;
  }
  ++num_simulated_;
  return (*request_.evaluate)(plan);
}

}  // namespace strata
