#pragma once

/// @file
/// From a mode's name to the Programs of all ranks.

#include <map>
#include <string>
#include <vector>

#include "lower/lower.hpp"
#include "lower/states/shard_groups.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "support/no_workspace.hpp"
#include "support/refusal.hpp"

namespace strata {

inline Plan asked(std::int64_t global_batch, int ranks) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.mesh.ranks_per_node = ranks;
  return plan;
}

/// What modes that shard states ask for on two nodes of four ranks, in bf16, of one sample a rank and micro-batch.
inline Plan sharded_on_two_nodes(int micro_batches, const StateFactors& state) {
  Plan plan;
  plan.strategy = "sharded";
  plan.mesh = {.nodes = 2, .ranks_per_node = 4, .axes = {{"data", 8}}};
  plan.global_batch = 8 * micro_batches;
  plan.schedule.micro_batches = micro_batches;
  plan.dtypes = {DType::bf16, DType::bf16};
  plan.operators = {{.match = "*", .state = state}};
  return plan;
}

/// @param options that differ from the mode's defaults. @param evaluate may be null.
inline Plan planned(const Planner& planner, const ModelGraph& graph, Plan base,
                    std::map<std::string, OptionValue> options = {}, const Cluster& cluster = {},
                    const Evaluate* evaluate = nullptr) {
  base.strategy = planner.name();
  for (const OptionRow& row : planner.options()) options.try_emplace(std::string(row.name), row.default_value);
  return planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = options, .evaluate = evaluate});
}

/// Of rank 0 of two that share the data, with nothing lowered yet.
struct FirstOfTwo {
  std::vector<ParameterShard> shards;
  ProgramBuilder builder{0, 2, {"compute", "communication"}};
  ShardGroups groups;

  /// @param shard of every parameter of @p graph.
  FirstOfTwo(const Plan& plan, const ModelGraph& graph, const ParameterShard& shard)
      : shards(graph.parameters.size(), shard),
        groups(plan, shards, whole_grids(plan.mesh, 0), std::vector{builder.add_group({"data", {0, 1}})}, builder) {}
};

inline std::vector<Program> all_ranks(const Plan& plan, const ModelGraph& graph, const KernelTraits& kernels) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) programs.push_back(lower(plan, graph, rank, kernels));
  return programs;
}

/// What lowering says of @p plan; empty where it can be lowered.
inline std::string lowering_refusal(const Plan& plan, const ModelGraph& graph) {
  return refusal([&] { lower(plan, graph, 0, no_workspace); });
}

}  // namespace strata
