#pragma once

/// @file
/// What the modes that shard states share: the option `overlap`, and a plan of one rule for all operators.

#include <memory>
#include <string_view>

#include "ir/shards.hpp"
#include "planners/planner.hpp"
#include "planners/sharding/factors.hpp"

namespace strata {

/// The option `overlap`, see set_overlap().
OptionRow overlap_option();
/// The option `gradients`: how a gradient comes to the ranks that keep a part of it.
OptionRow gradients_option(std::string_view default_word);

/// What runs under what: `none`; `gather`: gathers and reduce-scatters of parameter shards under compute; `full`: also
/// gradient buckets under backward, unless [overlap] says none; `deepspeed`: as full, but a reduce-scatter is waited
/// for where it stands. Updated parameters are spread under nothing. Source: AMSP sec. V-C and table V.
void set_overlap(Plan& plan, std::string_view word);

/// @p request's plan with @p state for every operator, optimizer states cut evenly and spread by all-gathers, and
/// gathered parameters given up after a recomputation, as FSDP and DeepSpeed do; the options above where the mode has
/// them. @throws Unsupported where @p state breaks a rule.
Plan sharded_plan(const PlanRequest& request, const StateFactors& state);

/// @p state as the one rule of @p plan. @throws Unsupported where it breaks a rule.
void set_state(Plan& plan, const StateFactors& state);

/// What the option `cost` names: paper, analytic or measured. @param instead what can be asked for without costs.
/// @throws Unsupported where the cluster lacks a number, or the experiment a profile.
std::unique_ptr<CostModel> cost_model_of(const PlanRequest& request, std::string_view instead);

/// The option @p name: a factor, or "node" for all ranks of one node.
Factor node_or_factor(const PlanRequest& request, const std::string& name);

}  // namespace strata
