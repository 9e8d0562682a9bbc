#pragma once

/// @file
/// Requests to modes, a small model for them, and AMSP's cluster.

#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "ir/machine/cluster.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "planners/states/factors.hpp"
#include "support/lowered_account.hpp"
#include "support/source_dir.hpp"

namespace strata {

/// 128 nodes of 8 A800.
inline const Cluster& a800_ib() {
  static const Cluster cluster = [] {
    const std::string path = test::source_dir() + "/experiments/clusters/a800-ib.toml";
    std::ifstream stream(path);
    return parse_cluster({std::istreambuf_iterator<char>(stream), {}}, path);
  }();
  return cluster;
}

/// A GPT whose other sizes go with @p hidden, a multiple of 64.
inline ModelGraph small_gpt(int layers, std::int64_t hidden, bool tied = false) {
  return build_model({.name = "gpt",
                      .layers = layers,
                      .hidden = hidden,
                      .heads = hidden / 64,
                      .vocabulary = 4 * hidden,
                      .sequence_length = hidden / 4,
                      .tied_head = tied});
}

/// One sample a rank and micro-batch, in bf16.
inline Plan asked_on(const Factor& grid, int micro_batches) {
  Plan plan;
  plan.mesh.ranks_per_node = grid.in_node;
  plan.mesh.nodes = grid.nodes;
  plan.global_batch = std::int64_t{grid.total()} * micro_batches;
  plan.schedule.micro_batches = micro_batches;
  plan.dtypes = {DType::bf16, DType::bf16};
  return plan;
}

/// AMSP sec. VI-A: 4 M tokens in sequences of 4096, one a micro-batch; LLaMA-30B recomputes.
inline Plan asked_by_amsp(const std::string& model, int nodes) {
  Plan plan = asked_on({8, nodes}, 128 / nodes);
  plan.recompute = model == "llama-30b" ? Recompute::block : Recompute::none;
  plan.device_capacity_bytes = a800_ib().device_memory_bytes;
  return plan;
}

/// amsp asks Programs what fits. Other modes are asked for their closed forms here, which order what they look at.
/// @param options that differ from the mode's defaults.
inline Plan planned(const std::string& mode, const ModelGraph& graph, Plan base,
                    std::map<std::string, OptionValue> options = {}, const Cluster& cluster = a800_ib()) {
  const Planner& planner = find_planner(mode);
  base.strategy = mode;
  for (const OptionRow& row : planner.options()) options.try_emplace(std::string(row.name), row.default_value);
  const LoweredAccount account(graph);
  return planner.plan({.graph = graph,
                       .cluster = cluster,
                       .base = base,
                       .options = options,
                       .evaluate = mode == "amsp" ? &account : nullptr});
}

inline StateFactors state_of(const Plan& plan) { return plan.operators.at(0).state.value(); }

}  // namespace strata
