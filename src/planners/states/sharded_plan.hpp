#pragma once

/// @file
/// What the modes that shard states share: the option `overlap`, and a plan of one rule for all operators.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "partition/shards.hpp"
#include "planners/planner.hpp"
#include "planners/states/factors.hpp"

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
/// them. @throws Unsupported where @p state breaks a rule, and where micro-batches do not divide the batch.
Plan sharded_plan(const PlanRequest& request, const StateFactors& state);

/// @p state as the one rule of @p plan. @throws Unsupported where it breaks a rule.
void set_state(Plan& plan, const StateFactors& state);

/// "58.00 GiB", and of less than one "0.0462 GiB".
std::string gib(std::int64_t bytes);
/// "3d on 8 ranks: nothing fits into a device memory of 8.00 GiB (8589934592 bytes)", behind which a mode says what is
/// needed.
std::string nothing_fits(const Plan& plan);

/// What the option `cost` names: paper, analytic or measured. @param instead what can be asked for without costs.
/// @throws Unsupported where the cluster lacks a number, or the experiment a profile.
std::unique_ptr<CostModel> cost_model_of(const PlanRequest& request, std::string_view instead);
/// The option `placement`: block, or leaf-first.
OptionRow placement_option();
/// Where the option asks for leaf-first: the nodes of @p plan so ordered that groups which take several of them lie
/// under one leaf switch, as many groups as can (leaf_first_order). @throws Unsupported where the request does not know
/// the leaves.
void place_nodes(Plan& plan, const PlanRequest& request);
/// An order of nodes in which groups of each of @p group_nodes neighbours, ascending, each dividing the next and the
/// number of nodes, lie under one leaf first: nodes of a leaf make whole groups as far as they go, what is left over
/// makes mixed ones behind them; then those groups the same way groups of the next size. Source: AMSP sec. V-D,
/// fig. 10.
std::vector<int> leaf_first_order(std::span<const int> leaf_of_node, std::span<const int> group_nodes);

/// The option @p name: a factor, or "node" for all ranks of one node.
Factor node_or_factor(const PlanRequest& request, const std::string& name);

}  // namespace strata
