#include "planners/joint/moves.hpp"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "planners/joint/decision_rules.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

constexpr std::array recompute_kinds = {Recompute::none, Recompute::block, Recompute::after_communication,
                                        Recompute::whole_block};

/// @p plan whose first @p num_blocks blocks do @p kind again, and no others anything.
Plan with_recompute(const PlanRequest& request, const Plan& plan, Recompute kind, int num_blocks) {
  const ModelGraph& graph = request.graph;
  const bool is_all = num_blocks == std::ssize(graph.blocks);
  std::vector<OperatorDecision> decisions = resolve(plan, graph);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const int block = graph.operators[o].block;
    const bool runs_again = is_all || (block >= 0 && block < num_blocks);
    decisions[o].recompute = runs_again ? kind : Recompute::none;
  }
  Plan changed = plan;
  changed.recompute = is_all ? kind : Recompute::none;
  if (kind == Recompute::none) changed.schedule.cross_pass = false;
  changed.operators = rules_of_decisions(graph, decisions, changed.recompute);
  return changed;
}

}  // namespace

std::vector<Move> moves_of_recompute(const PlanRequest& request, const Plan& plan) {
  const int all = static_cast<int>(request.graph.blocks.size());
  std::vector<Move> moves;
  for (const Recompute kind : recompute_kinds) {
    if (kind == Recompute::none) {
      moves.push_back({"recompute none", with_recompute(request, plan, kind, all)});
      continue;
    }
    for (const int blocks : std::set{all / 4, all / 2, all - all / 4, all}) {
      if (blocks == 0) continue;
      const std::string where = blocks == all ? "" : fmt::format(" in the first {} of {} blocks", blocks, all);
      moves.push_back(
          {fmt::format("recompute {}{}", to_string(kind), where), with_recompute(request, plan, kind, blocks)});
    }
  }
  return moves;
}

std::vector<Move> moves_of_sub_batches(const PlanRequest& request, const Plan& plan) {
  constexpr int most_sub_batches = 4;
  if (!has_layouts(plan.mesh)) return {};
  const int all = static_cast<int>(request.graph.blocks.size());
  std::vector<Move> moves;
  for (int count = 1; count <= most_sub_batches; ++count) {
    Plan turns = plan;
    turns.schedule.sub_batches = count;
    turns.schedule.cross_pass = false;
    moves.push_back({fmt::format("{} sub-batches", count), turns});
    if (count == 1) continue;
    turns.schedule.cross_pass = true;
    const bool recomputes = plan.recompute != Recompute::none;
    if (!recomputes) turns = with_recompute(request, turns, Recompute::after_communication, all);
    moves.push_back(
        {fmt::format("{} sub-batches across passes{}", count, recomputes ? "" : ", recompute after_communication"),
         std::move(turns)});
  }
  return moves;
}

std::vector<Move> moves_of_overlap(const PlanRequest& request, const Plan& plan) {
  std::vector<Move> moves;
  const auto set = [&](std::string words, const auto& change) {
    Plan changed = plan;
    change(changed.overlap);
    moves.push_back({std::move(words), std::move(changed)});
  };
  struct Switch {
    const char* name;
    std::string Overlap::*word;
    const char* on;
  };
  for (const Switch& each : {Switch{"all_reduce", &Overlap::all_reduce, "backward"},
                             {"gather", &Overlap::gather, "next_layer"},
                             {"gather_backward", &Overlap::gather_backward, "next_module"},
                             {"reduce_scatter", &Overlap::reduce_scatter, "grad_input"},
                             {"broadcast", &Overlap::broadcast, "next_forward"},
                             {"update", &Overlap::update, "backward"},
                             {"layout", &Overlap::layout, "weight_gradient"},
                             {"panels", &Overlap::panels, "next_product"}}) {
    // A norm of all gradients is known behind the last backward.
    if (each.word == &Overlap::update && plan.optimizer.clip_norm > 0.0) continue;
    for (const char* word : {"none", each.on}) {
      set(fmt::format("overlap.{} = {}", each.name, word), [&](Overlap& overlap) { overlap.*each.word = word; });
    }
  }
  constexpr std::int64_t kib = 1024;
  for (const std::int64_t bytes : {plan.overlap.bucket_bytes / 4, plan.overlap.bucket_bytes * 4}) {
    if (bytes < kib) continue;
    set(fmt::format("overlap.bucket_bytes = {}", bytes), [&](Overlap& overlap) { overlap.bucket_bytes = bytes; });
  }
  const std::int64_t asked = request.base.overlap.spread_bytes;
  for (const std::int64_t bytes : {std::int64_t{0}, asked, plan.overlap.bucket_bytes}) {
    set(fmt::format("overlap.spread_bytes = {}", bytes), [&](Overlap& overlap) { overlap.spread_bytes = bytes; });
  }
  return moves;
}

std::vector<Move> moves_of_placement(const PlanRequest& request, const Plan& plan) {
  if (static_cast<int>(request.leaf_of_node.size()) != plan.mesh.nodes || plan.mesh.nodes == 1) return {};
  if (plan.mesh.placement == "leaf-first") {
    Plan placed = plan;
    placed.mesh.placement = "block";
    placed.mesh.node_order.clear();
    return {{"placement block", std::move(placed)}};
  }
  PlanRequest asked = request;
  asked.options.insert_or_assign("placement", std::string("leaf-first"));
  Plan placed = plan;
  place_nodes(placed, asked);
  return {{"placement leaf-first", std::move(placed)}};
}

std::vector<Move> moves_of(Dimension dimension, const PlanRequest& request, const Plan& plan,
                           std::span<const ParallelDegrees> all) {
  switch (dimension) {
    case Dimension::stages: return moves_of_stages(request, plan, all);
    case Dimension::tensor: return moves_of_tensor(request, plan, all);
    case Dimension::states: return moves_of_states(request, plan);
    case Dimension::slices: return moves_of_slices(request, plan);
    case Dimension::recompute: return moves_of_recompute(request, plan);
    case Dimension::sub_batches: return moves_of_sub_batches(request, plan);
    case Dimension::overlap: return moves_of_overlap(request, plan);
    case Dimension::placement: return moves_of_placement(request, plan);
  }
  return {};
}

}  // namespace strata
