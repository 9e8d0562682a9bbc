#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "planners/joint/decision_rules.hpp"
#include "planners/joint/moves.hpp"
#include "planners/operators/units.hpp"
#include "planners/states/factors.hpp"
#include "planners/states/sharded_plan.hpp"
#include "planners/states/state_share.hpp"

namespace strata {
namespace {

/// Operators about which a move says the same: those of units that stand at one place of their blocks.
struct Place {
  std::string name;            ///< "block.attn.*", "head"
  std::vector<int> operators;  ///< with parameters
};

std::vector<Place> places_of(const ModelGraph& graph) {
  std::vector<Place> places;
  for (const OperatorUnit& unit : operator_units(graph, Granularity::block)) {
    const std::string name = fmt::format("{}{}", unit.block < 0 ? "" : "block.", fmt::join(unit.patterns, ", "));
    auto place = std::ranges::find(places, name, &Place::name);
    if (place == places.end()) place = places.insert(places.end(), {.name = name, .operators = {}});
    for (const int o : unit.operators) {
      if (!graph.operators[static_cast<std::size_t>(o)].parameters.empty()) place->operators.push_back(o);
    }
  }
  return places;
}

void hide_gathers(StateShare share, Plan& plan) {
  if (share != StateShare::parameters || plan.overlap.gather != "none") return;
  const std::string broadcast = plan.overlap.broadcast;
  set_overlap(plan, "full");
  plan.overlap.broadcast = broadcast;
}

/// What has to go with sharded states, so that a plan whose states were replicated is not compared at its worst.
void prepare_to_shard(StateShare share, Plan& plan) {
  if (share == StateShare::none) return;
  plan.optimizer.sharding = "intra_tensor";
  plan.optimizer.spread = "all_gather";
  hide_gathers(share, plan);
}

class StateMoves {
 public:
  StateMoves(const PlanRequest& request, const Plan& plan)
      : graph_(request.graph),
        plan_(plan),
        decisions_(resolve(plan, request.graph)),
        copies_(copies_of_operators(plan.mesh, decisions_)),
        spreads_(std::ranges::any_of(decisions_, [](const OperatorDecision& d) { return d.state.os != d.state.p; })) {}

  std::vector<Move> of_all_operators() {
    for (const StateShare share : state_shares) add_share(share, everything(), "", false);
    add_parameters_in_a_node();
    return std::move(moves_);
  }

  std::vector<Move> all() {
    moves_ = of_all_operators();
    for (const Place& place : places_of(graph_)) {
      for (const StateShare share : {StateShare::none, StateShare::parameters}) {
        add_share(share, place.operators, fmt::format(" of {}", place.name), share == StateShare::parameters);
      }
    }
    add_next_factors();
    add_ways_of_gradients();
    return std::move(moves_);
  }

 private:
  /// The plan, updated parts of which travel under the next forward where it had none: what it says of them said
  /// nothing, and sharded states are not to be compared at their worst. Not in stages, as above: steps that overlap
  /// take long to look at.
  Plan about_to_shard() const {
    Plan plan = plan_;
    if (!spreads_ && plan.stages.count == 1) plan.overlap.broadcast = "next_forward";
    return plan;
  }

  /// Operators with parameters.
  std::vector<int> everything() const {
    std::vector<int> operators;
    for (std::size_t o = 0; o < decisions_.size(); ++o) {
      if (!graph_.operators[o].parameters.empty()) operators.push_back(static_cast<int>(o));
    }
    return operators;
  }

  /// The plan's rules, but that @p operators hold their states as @p state_of says of their copies.
  template <typename StateOf>
  std::vector<OperatorRule> rules_with(const std::vector<int>& operators, const StateOf& state_of) const {
    std::vector<OperatorDecision> decisions = decisions_;
    for (const int o : operators) {
      const auto at = static_cast<std::size_t>(o);
      decisions[at].state = state_of(copies_[at]);
    }
    return rules_of_decisions(graph_, decisions, plan_.recompute);
  }

  /// @p operators hold their states as @p state_of says of their copies, cut evenly.
  template <typename StateOf>
  void add(std::string words, StateShare share, const std::vector<int>& operators, const StateOf& state_of,
           bool saves_only_memory = false) {
    Plan plan = share == StateShare::none ? plan_ : about_to_shard();
    prepare_to_shard(share, plan);
    plan.operators = rules_with(operators, state_of);
    moves_.push_back({std::move(words), std::move(plan), saves_only_memory});
  }

  /// Over all copies, and where these are on several nodes over those of a node.
  void add_share(StateShare share, const std::vector<int>& operators, const std::string& of, bool saves_only_memory) {
    const auto shard = [&](const std::string& where, const auto& over) {
      const auto state_of = [&](const Factor& copies) { return factors_of(share, over(copies)); };
      add(fmt::format("{}{}{}", to_string(share), of, where), share, operators, state_of, saves_only_memory);
    };
    if (share == StateShare::none) {
      shard("", std::identity());
      return;
    }
    shard(" over all copies", std::identity());
    if (plan_.mesh.nodes > 1) shard(" over the copies in a node", copies_in_a_node);
  }

  static Factor copies_in_a_node(const Factor& copies) { return {copies.in_node, 1}; }

  /// AMSP's: parameters, which travel in every micro-batch, do not leave a node, and what is larger is over all copies.
  /// In stages, whose plans take long to look at, copies are fewer and hold less.
  void add_parameters_in_a_node() {
    if (plan_.mesh.nodes == 1 || plan_.stages.count > 1) return;
    add("parameters and gradients over the copies in a node, optimizer states over all", StateShare::parameters,
        everything(), [](const Factor& copies) {
          const Factor in_node = copies_in_a_node(copies);
          return StateFactors{.p = in_node, .g = in_node, .os = copies};
        });
    add("parameters over the copies in a node, gradients and optimizer states over all", StateShare::parameters,
        everything(),
        [](const Factor& copies) { return StateFactors{.p = copies_in_a_node(copies), .g = copies, .os = copies}; });
  }

  /// Of operators that all hold the same: parameters, or optimizer states, over the next smaller and larger factor,
  /// with gradients as one or the other. Whole tensors that are dealt to ranks still are. Not in stages, as above.
  void add_next_factors() {
    const std::vector<int> operators = everything();
    if (operators.empty() || plan_.stages.count > 1) return;
    const auto first = static_cast<std::size_t>(operators.front());
    const Factor copies = copies_[first];
    const StateFactors own = decisions_[first].state;
    for (const int o : operators) {
      const auto at = static_cast<std::size_t>(o);
      if (copies_[at] != copies || decisions_[at].state != own) return;
    }
    const std::vector<Factor> factors = legal_factors(copies);
    const auto are_next = [&](const Factor& a, const Factor& b) {
      return std::abs(std::ranges::find(factors, a) - std::ranges::find(factors, b)) == 1;
    };
    for (const StateFactors& state : legal_states(copies)) {
      const bool next_parameters = state.os == own.os && are_next(state.p, own.p);
      const bool next_optimizer = state.p == own.p && are_next(state.os, own.os);
      const bool other_gradients = state.p == own.p && state.os == own.os && state.g != own.g;
      if (!next_parameters && !next_optimizer && !other_gradients) continue;
      Plan plan = about_to_shard();
      if (share_of(own) == StateShare::none) prepare_to_shard(share_of(state), plan);
      hide_gathers(share_of(state), plan);
      plan.operators = rules_with(operators, [&](const Factor&) { return state; });
      moves_.push_back({to_string(state), std::move(plan)});
    }
  }

  void add_ways_of_gradients() {
    const auto add_plan = [&](std::string words, const auto& change) {
      Plan plan = plan_;
      change(plan);
      moves_.push_back({std::move(words), std::move(plan)});
    };
    for (const char* word : {"all_reduce", "reduce_scatter"}) {
      add_plan(fmt::format("optimizer.gradients = {}", word), [&](Plan& plan) { plan.optimizer.gradients = word; });
    }
    const auto deal = [](Plan& plan) {
      plan.optimizer.sharding = "inter_tensor";
      plan.optimizer.spread = "broadcast";
      plan.optimizer.gradients = "all_reduce";
    };
    add_plan("whole tensors dealt to ranks, and broadcast", deal);
    // Only optimizer states are dealt: from sharded parameters the way there leads over plans that are slower.
    add_plan("optimizer states over all copies, whole tensors dealt to ranks, and broadcast", [&](Plan& plan) {
      plan = about_to_shard();
      deal(plan);
      plan.operators =
          rules_with(everything(), [](const Factor& copies) { return factors_of(StateShare::optimizer, copies); });
    });
    // Gradients that are all-reduced are kept whole until then: without them parameters may be held whole, and neither
    // is worth anything alone.
    add_plan("gradients and optimizer states over all copies, gradients scattered as they come", [&](Plan& plan) {
      plan = about_to_shard();
      prepare_to_shard(StateShare::gradients, plan);
      plan.optimizer.gradients = "reduce_scatter";
      plan.operators =
          rules_with(everything(), [](const Factor& copies) { return factors_of(StateShare::gradients, copies); });
    });
    for (const char* word : {"keep", "regather"}) {
      add_plan(fmt::format("gathered_after_recompute = {}", word),
               [&](Plan& plan) { plan.gathered_after_recompute = word; });
    }
  }

  const ModelGraph& graph_;
  const Plan& plan_;
  std::vector<OperatorDecision> decisions_;
  std::vector<Factor> copies_;
  bool spreads_;  ///< ranks send parts of parameters that they updated to others
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> moves_of_states(const PlanRequest& request, const Plan& plan) {
  return StateMoves(request, plan).all();
}

std::vector<Move> moves_of_all_states(const PlanRequest& request, const Plan& plan) {
  return StateMoves(request, plan).of_all_operators();
}

std::vector<Move> moves_of_slices(const PlanRequest& request, const Plan& plan) {
  constexpr int no_slices = 0, osdps_slices = 4;
  const ModelGraph& graph = request.graph;
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  std::vector<Move> moves;
  for (const int slices : {no_slices, osdps_slices}) {
    for (const Place& place : places_of(graph)) {
      std::vector<OperatorDecision> changed = decisions;
      bool differs = false;
      for (const int o : place.operators) {
        OperatorDecision& d = changed[static_cast<std::size_t>(o)];
        if (graph.operators[static_cast<std::size_t>(o)].kind != OperatorKind::linear) continue;
        const bool shards = share_of(d.state) == StateShare::parameters;
        if (d.slices == slices || (slices > 0 && !shards)) continue;
        differs = true;
        d.slices = slices;
        d.slice_state.assign(static_cast<std::size_t>(slices), "zdp");
      }
      if (!differs) continue;
      Plan sliced = plan;
      sliced.operators = rules_of_decisions(graph, changed, plan.recompute);
      moves.push_back({slices == no_slices ? fmt::format("{} whole", place.name)
                                           : fmt::format("{} in {} slices, all sharded", place.name, slices),
                       std::move(sliced), slices != no_slices});
    }
  }
  return moves;
}

}  // namespace strata
