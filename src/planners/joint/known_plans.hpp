#pragma once

/// @file
/// Plans that were asked about, each once, with what their Programs need and take.

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "planners/planner.hpp"

namespace strata {

struct KnownPlan {
  Plan plan;  ///< of the request's strategy, without its why
  Evaluation found;
  double seconds_per_sample() const { return found.step_seconds / static_cast<double>(plan.global_batch); }
  /// It can be lowered, and the simulator has told its seconds.
  bool fits() const { return found.feasible() && found.step_seconds > 0.0; }
  /// It can be lowered.
  bool is_possible() const { return found.peak_bytes > 0; }
};

/// What fits is better than what does not; of what fits the fewer seconds a sample, of what does not the fewer bytes.
bool is_better(const KnownPlan& a, const KnownPlan& b);

class KnownPlans {
 public:
  /// @param request outlives this; its evaluation knows seconds.
  explicit KnownPlans(const PlanRequest& request) : request_(request) {}

  /// What does not fit by few of its blocks is not simulated: its peak is a bound from below.
  const KnownPlan& ask(Plan plan);
  /// By plan, those that are new on the request's threads.
  std::vector<const KnownPlan*> ask(std::vector<Plan> plans);

  /// It was asked.
  bool has(Plan plan) const;
  /// @p plan as all of them are: of plans of the same Programs one.
  Plan comparable(Plan plan) const;

  const std::deque<KnownPlan>& all() const { return plans_; }
  int num_simulated() const {
    return static_cast<int>(
        std::ranges::count_if(plans_, [](const KnownPlan& known) { return known.found.step_seconds > 0.0; }));
  }

 private:
  Evaluation evaluated(const Plan& plan) const;

  const PlanRequest& request_;
  std::deque<KnownPlan> plans_;
  std::unordered_map<std::string, const KnownPlan*> by_text_;
};

}  // namespace strata
