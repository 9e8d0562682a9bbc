#pragma once

/// @file
/// Plans of the space that were asked about, each once, with what their Programs need and take, and the best of them.

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "planners/joint/dimension.hpp"
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
/// It fits, and takes at most so many @p times as long as @p best, which fits.
bool is_within(double times, const KnownPlan& known, const KnownPlan& best);

class KnownPlans {
 public:
  /// @param request, dimensions outlive this; the evaluation of the request knows seconds.
  KnownPlans(const PlanRequest& request, const Dimensions& dimensions) : request_(request), dimensions_(dimensions) {}

  /// What does not fit by few of its blocks is not simulated: its peak is a bound from below.
  /// @return null: @p plan lies outside of the space.
  const KnownPlan* ask(Plan plan);
  /// By plan, those that are new on the request's threads.
  std::vector<const KnownPlan*> ask(std::vector<Plan> plans);

  /// @p plan as all of them are, with what is left out as the experiment asks: of plans of the same Programs one.
  /// Nothing: it lies outside of the space.
  std::optional<Plan> in_space(Plan plan) const;
  /// It was asked. @param inside as in_space() makes it.
  bool has(const Plan& inside) const { return by_text_.contains(to_text(inside)); }

  const std::deque<KnownPlan>& all() const { return plans_; }
  /// Null: none was asked.
  const KnownPlan* best() const { return best_; }
  bool one_fits() const { return best_ != nullptr && best_->fits(); }
  int num_simulated() const {
    return static_cast<int>(
        std::ranges::count_if(plans_, [](const KnownPlan& known) { return known.found.step_seconds > 0.0; }));
  }

 private:
  Evaluation evaluated(const Plan& plan) const;

  const PlanRequest& request_;
  const Dimensions& dimensions_;
  std::deque<KnownPlan> plans_;
  std::unordered_map<std::string, const KnownPlan*> by_text_;
  const KnownPlan* best_ = nullptr;
};

}  // namespace strata
