#pragma once

/// @file
/// What every other mode would plan for the same request, each by its own defaults: candidates of `auto`, and what it
/// is compared with.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planners/planner.hpp"

namespace strata {

struct SinglePlan {
  std::string mode;
  std::optional<Plan> plan;  ///< as the mode makes it
  std::string refusal;       ///< where there is none
};

/// One of each mode but `auto`, by name. Modes that update by another rule (cdp-v1, cdp-v2, 2bw) are looked at where
/// @p may_be_stale. A batch that is the planner's is that of the modes that choose one; the others take the first
/// found. Where @p chooses_micro_batches, each has those that it is fastest with.
std::vector<SinglePlan> single_plans(const PlanRequest& request, bool may_be_stale, bool chooses_micro_batches);

/// What @p mode plans with its defaults but for @p options, asked as @p request asks.
SinglePlan plan_of_mode(const PlanRequest& request, const Planner& mode, std::map<std::string, OptionValue> options,
                        bool chooses_micro_batches);

}  // namespace strata
