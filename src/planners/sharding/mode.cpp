#include "planners/sharding/mode.hpp"

#include <fmt/format.h>

#include <string>

#include "base/error.hpp"

namespace strata {

OptionRow overlap_option() {
  return {
      "overlap", std::string("full"), "full | gather | none | deepspeed",
      "what hides communication: gathers and reduce-scatters under compute (gather), gradient buckets under backward "
      "too (full); deepspeed: full without the reduce-scatters"};
}

OptionRow gradients_option(std::string_view default_word) {
  return {"gradients", std::string(default_word), "all_reduce | reduce_scatter",
          "how a gradient comes to the ranks that keep a part of it: reduced whole and the rest dropped, or scattered"};
}

void set_overlap(Plan& plan, std::string_view word) {
  Overlap& overlap = plan.overlap;
  const bool gathers = word != "none";
  overlap.gather = gathers ? "next_layer" : "none";
  overlap.gather_backward = gathers ? "next_module" : "none";
  overlap.reduce_scatter = word == "full" || word == "gather" ? "grad_input" : "none";
  if (word == "none" || word == "gather") overlap.all_reduce = "none";
  overlap.broadcast = "none";
}

void set_state(Plan& plan, const StateFactors& state) {
  if (const std::string broken = broken_rule(state, whole_grid(plan.mesh)); !broken.empty()) {
    throw Unsupported(fmt::format("{} on {} ranks: {}", plan.strategy, plan.mesh.num_ranks(), broken));
  }
  plan.operators = {{.match = "*", .state = state}};
}

Plan sharded_plan(const PlanRequest& request, const StateFactors& state) {
  Plan plan = request.base;
  plan.mesh.axes = {{"data", plan.mesh.num_ranks()}};
  set_state(plan, state);
  plan.optimizer.sharding = "intra_tensor";
  plan.optimizer.spread = "all_gather";
  plan.gathered_after_recompute = "regather";
  if (const auto gradients = request.options.find("gradients"); gradients != request.options.end()) {
    plan.optimizer.gradients = std::get<std::string>(gradients->second);
  }
  if (const auto overlap = request.options.find("overlap"); overlap != request.options.end()) {
    set_overlap(plan, std::get<std::string>(overlap->second));
  }
  return plan;
}

std::unique_ptr<CostModel> cost_model_of(const PlanRequest& request, std::string_view instead) {
  const std::string cost = std::get<std::string>(request.options.at("cost"));
  const Cluster& cluster = request.cluster;
  const auto lacks = [&](std::string_view what) {
    throw Unsupported(
        fmt::format("{} on {} ranks: cost = \"{}\" needs {}, and cluster {} has none; name a described cluster, or {}",
                    request.base.strategy, request.base.mesh.num_ranks(), cost, what,
                    cluster.name.empty() ? "(unnamed)" : cluster.name, instead));
  };
  if (cost == "measured") {
    if (!request.measured_costs) lacks("a profile");
    return request.measured_costs();
  }
  if (cluster.memory_bandwidth_bytes_per_second == 0.0) lacks("memory_bandwidth_bytes_per_second");
  if (request.base.mesh.ranks_per_node > 1 && cluster.intra_node.bandwidth_bytes_per_second == 0.0) {
    lacks("intra_node.bandwidth_bytes_per_second");
  }
  if (request.base.mesh.nodes > 1 && cluster.inter_node.bandwidth_bytes_per_second == 0.0) {
    lacks("inter_node.bandwidth_bytes_per_second");
  }
  return cost == "paper" ? paper_costs(cluster) : analytic_costs(cluster);
}

Factor node_or_factor(const PlanRequest& request, const std::string& name) {
  const auto factor = factor_option(name, std::get<std::string>(request.options.at(name)), "node");
  return factor.value_or(Factor{request.base.mesh.ranks_per_node, 1});
}

}  // namespace strata
