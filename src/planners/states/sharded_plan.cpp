#include "planners/states/sharded_plan.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "planners/even_micro_batches.hpp"
#include "planners/missing_costs.hpp"

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
  refuse_uneven_micro_batches(plan);
  set_state(plan, state);
  plan.optimizer.sharding = "intra_tensor";
  plan.optimizer.spread = "all_gather";
  plan.gathered_after_recompute = "regather";
  if (request.options.contains("gradients")) plan.optimizer.gradients = request.option<std::string>("gradients");
  if (request.options.contains("overlap")) set_overlap(plan, request.option<std::string>("overlap"));
  return plan;
}

std::string gib(std::int64_t bytes) {
  const double gibibytes = static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
  return fmt::format("{:.{}f} GiB", gibibytes, gibibytes < 1.0 ? 4 : 2);
}

std::string nothing_fits(const Plan& plan) {
  return fmt::format("{} on {} ranks: nothing fits into a device memory of {} ({} bytes)", plan.strategy,
                     plan.mesh.num_ranks(), gib(plan.device_capacity_bytes), plan.device_capacity_bytes);
}

std::unique_ptr<CostModel> cost_model_of(const PlanRequest& request, std::string_view instead) {
  const std::string cost = request.option<std::string>("cost");
  const Cluster& cluster = request.cluster;
  const auto lacks = [&](std::string_view what) { refuse_without_costs(request, what, instead); };
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

OptionRow placement_option() {
  return {
      "placement", std::string("block"), "block | leaf-first",
      "which nodes make a group that takes several: neighbours in the launcher's order, or under one leaf switch as "
      "far as they go"};
}

std::vector<int> leaf_first_order(std::span<const int> leaf_of_node, std::span<const int> group_nodes) {
  struct Unit {
    std::vector<int> nodes;
    int leaf = 0;  ///< -1: several
  };
  std::vector<Unit> units;
  for (std::size_t node = 0; node < leaf_of_node.size(); ++node) {
    units.push_back({{static_cast<int>(node)}, leaf_of_node[node]});
  }
  for (const int size : group_nodes) {
    std::map<int, std::vector<Unit>> by_leaf;
    std::vector<Unit> groups, left_over;
    const auto make_groups = [&](std::vector<Unit>& from, int leaf) {
      const std::size_t taken = static_cast<std::size_t>(size) / units.front().nodes.size();
      std::size_t next = 0;
      for (; next + taken <= from.size(); next += taken) {
        Unit& group = groups.emplace_back(Unit{{}, leaf});
        for (std::size_t i = next; i < next + taken; ++i) {
          group.nodes.insert(group.nodes.end(), from[i].nodes.begin(), from[i].nodes.end());
        }
      }
      left_over.insert(left_over.end(), from.begin() + static_cast<std::ptrdiff_t>(next), from.end());
    };
    std::vector<Unit> mixed;
    for (Unit& unit : units) (unit.leaf < 0 ? mixed : by_leaf[unit.leaf]).push_back(unit);
    for (auto& [leaf, members] : by_leaf) make_groups(members, leaf);
    std::vector<Unit> rest = std::exchange(left_over, {});
    rest.insert(rest.end(), mixed.begin(), mixed.end());
    make_groups(rest, -1);
    units = std::move(groups);
  }
  std::vector<int> order;
  for (const Unit& unit : units) order.insert(order.end(), unit.nodes.begin(), unit.nodes.end());
  return order;
}

void place_nodes(Plan& plan, const PlanRequest& request) {
  if (request.option<std::string>("placement") == "block") return;
  if (static_cast<int>(request.leaf_of_node.size()) != plan.mesh.nodes) {
    throw Unsupported(
        fmt::format("{} on {} nodes: placement = leaf-first needs a cluster with leaf switches, and {} has "
                    "nodes_per_leaf = {}",
                    plan.strategy, plan.mesh.nodes, request.cluster.name, request.cluster.nodes_per_leaf));
  }
  std::set<int> sizes = {plan.mesh.nodes};
  for (const OperatorRule& rule : plan.operators) {
    if (!rule.state) continue;
    for (const Factor& f : {rule.state->p, rule.state->g, rule.state->os, rule.state->p_backward.value_or(Factor{})}) {
      if (f.nodes > 1) sizes.insert(f.nodes);
    }
  }
  plan.mesh.placement = "leaf-first";
  plan.mesh.node_order = leaf_first_order(request.leaf_of_node, std::vector<int>(sizes.begin(), sizes.end()));
}

Factor node_or_factor(const PlanRequest& request, const std::string& name) {
  const auto factor = factor_option(name, request.option<std::string>(name), "node");
  return factor.value_or(Factor{request.base.mesh.ranks_per_node, 1});
}

}  // namespace strata
