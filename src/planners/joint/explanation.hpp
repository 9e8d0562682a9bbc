#pragma once

/// @file
/// Why `auto` decides as it does, in words: what the next choice of every dimension costs, what single modes' plans
/// take beside it, and what time less memory costs.

#include <string>
#include <utility>
#include <vector>

#include "base/infinity.hpp"
#include "planners/joint/dimension.hpp"
#include "planners/joint/known_plans.hpp"
#include "planners/joint/neighbourhood.hpp"
#include "planners/planner.hpp"

namespace strata {

/// What a single mode plans, as far as it lies in the space.
struct AskedSingle {
  std::string mode;
  const KnownPlan* known = nullptr;  ///< null: it was refused, or lies outside
  std::string refusal;
};

using MovesByDimension = std::vector<std::pair<Dimension, std::vector<AskedMove>>>;

struct JointAnswer {
  const PlanRequest& request;
  const KnownPlan& best;
  const KnownPlans& known;
  MovesByDimension moves{};  ///< of the best plan
  std::vector<AskedSingle> singles{};
  std::string without_candidates{};  ///< what a step of the best plan takes that was found before; empty: not known
  int num_combinations = 0;          ///< of degrees
  double kernel_seconds = infinity;  ///< that the kernels of every combination take at least; 0: not known
};

/// The best plan and its why.
Plan with_explanation(const JointAnswer& answer);

/// Where nothing fits: what the plan that needs least needs, of what, and how much is missing.
std::string least_plan_in_words(const PlanRequest& request, const KnownPlan& least, const KnownPlans& known);

}  // namespace strata
