#include "planners/joint/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "planners/joint/decision_rules.hpp"
#include "planners/states/sharded_plan.hpp"

namespace strata {
namespace {

std::int64_t num_recomputed_blocks(const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  return std::ranges::count_if(graph.blocks, [&](const Block& block) {
    const auto first = decisions.begin() + block.first_operator;
    return std::any_of(first, first + block.num_operators,
                       [](const OperatorDecision& d) { return d.recompute != Recompute::none; });
  });
}

/// What ranks exchange of a plan, beside gradients that all of them hold.
struct CommunicatedParts {
  bool parameters = false, updates = false;  ///< that are sharded
  bool sums = false;                         ///< of products that ranks share
  bool panels = false;
};

CommunicatedParts communicated_parts(const Plan& plan, const std::vector<OperatorDecision>& decisions) {
  CommunicatedParts parts{.sums = most_tensor_ranks(plan) > 1};
  for (const OperatorDecision& d : decisions) {
    const bool has_sharded_slices = std::ranges::find(d.slice_state, "zdp") != d.slice_state.end();
    parts.parameters |= has_sharded_slices || d.state.p.total() > 1;
    parts.updates |= has_sharded_slices || d.state.os.total() > 1;
    parts.panels |= d.algorithm == MatmulAlgorithm::summa;
  }
  return parts;
}

/// Several ranks hold the same of a parameter, so that its gradients are summed.
bool sums_gradients(const Mesh& mesh, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  const int data = has_layouts(mesh) ? mesh_of_stage(mesh).num_ranks() : axis_size(mesh, "data");
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    if (graph.operators[o].parameters.empty()) continue;
    const OperatorDecision& d = decisions[o];
    if ((d.layout ? copies_of_weight(*d.layout, d.algorithm).total() : data) > 1) return true;
  }
  return false;
}

}  // namespace

bool runs_again(const Plan& plan) {
  return plan.recompute != Recompute::none || std::ranges::any_of(plan.operators, [](const OperatorRule& rule) {
           return rule.recompute.value_or(Recompute::none) != Recompute::none;
         });
}

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

std::vector<Move> moves_to_recompute(const PlanRequest& request, const Plan& plan, Recompute kind) {
  const int all = static_cast<int>(request.graph.blocks.size());
  const std::int64_t now = num_recomputed_blocks(request.graph, resolve(plan, request.graph));
  std::vector<Move> moves;
  for (const int blocks : std::set{all / 4, all / 2, all - all / 4, all}) {
    if (blocks == 0) continue;
    const std::string where = blocks == all ? "" : fmt::format(" in the first {} of {} blocks", blocks, all);
    moves.push_back({fmt::format("recompute {}{}", to_string(kind), where), with_recompute(request, plan, kind, blocks),
                     blocks > now});
  }
  return moves;
}

std::vector<Move> moves_of_recompute(const PlanRequest& request, const Plan& plan) {
  const int all = static_cast<int>(request.graph.blocks.size());
  std::vector<Move> moves = {{"recompute none", with_recompute(request, plan, Recompute::none, all)}};
  for (const Recompute kind : ways_to_recompute) {
    for (Move& move : moves_to_recompute(request, plan, kind)) moves.push_back(std::move(move));
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
  const std::vector<OperatorDecision> decisions = resolve(plan, request.graph);
  const CommunicatedParts parts = communicated_parts(plan, decisions);
  std::vector<Move> moves;
  const auto set = [&](std::string words, const auto& change, bool saves_only_memory = false) {
    Plan changed = plan;
    change(changed.overlap);
    moves.push_back({std::move(words), std::move(changed), saves_only_memory});
  };
  struct Switch {
    const char* name;
    std::string Overlap::*word;
    const char* on;
    bool is_there;
  };
  for (const Switch& each : {Switch{"all_reduce", &Overlap::all_reduce, "backward", true},
                             {"gather", &Overlap::gather, "next_layer", parts.parameters},
                             {"gather_backward", &Overlap::gather_backward, "next_module", parts.parameters},
                             {"reduce_scatter", &Overlap::reduce_scatter, "grad_input", parts.parameters},
                             {"broadcast", &Overlap::broadcast, "next_forward", parts.updates},
                             {"update", &Overlap::update, "backward", true},
                             {"layout", &Overlap::layout, "weight_gradient", parts.sums},
                             {"panels", &Overlap::panels, "next_product", parts.panels}}) {
    // A norm of all gradients is known behind the last backward.
    if (!each.is_there || (each.word == &Overlap::update && plan.optimizer.clip_norm > 0.0)) continue;
    for (const char* word : {"none", each.on}) {
      set(fmt::format("overlap.{} = {}", each.name, word), [&](Overlap& overlap) { overlap.*each.word = word; });
    }
  }
  constexpr std::int64_t kib = 1024;
  const bool saves_only_memory = !sums_gradients(plan.mesh, request.graph, decisions);
  for (const std::int64_t bytes : {plan.overlap.bucket_bytes / 4, plan.overlap.bucket_bytes * 4}) {
    if (bytes < kib) continue;
    set(
        fmt::format("overlap.bucket_bytes = {}", bytes), [&](Overlap& overlap) { overlap.bucket_bytes = bytes; },
        saves_only_memory);
  }
  if (!parts.updates) return moves;
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
