#include <fmt/format.h>

#include <utility>

#include "partition/shards.hpp"
#include "planners/joint/decision_rules.hpp"
#include "planners/joint/degree_moves.hpp"
#include "planners/joint/moves.hpp"
#include "planners/layouts/candidates.hpp"
#include "planners/layouts/layers.hpp"
#include "planners/operators/units.hpp"
#include "planners/states/state_share.hpp"

namespace strata {
namespace {

int least_prime_of(int n) {
  for (int prime = 2; prime * prime <= n; ++prime) {
    if (n % prime == 0) return prime;
  }
  return n;
}

/// Every layout in which one prime of one of p0, p1 and p2 has gone to another.
std::vector<Layout> neighbours(const Layout& layout) {
  constexpr Factor Layout::*factors[] = {&Layout::p0, &Layout::p1, &Layout::p2};
  std::vector<Layout> all;
  for (const auto from : factors) {
    for (const auto to : factors) {
      if (from == to) continue;
      for (const auto of : {&Factor::in_node, &Factor::nodes}) {
        const int ranks = layout.*from.*of;
        if (ranks == 1) continue;
        Layout& moved = all.emplace_back(layout);
        moved.*from.*of /= least_prime_of(ranks);
        moved.*to.*of *= least_prime_of(ranks);
      }
    }
  }
  return all;
}

class LayoutMoves {
 public:
  LayoutMoves(const PlanRequest& request, const Plan& plan)
      : graph_(request.graph),
        plan_(plan),
        grid_(data_grid(plan.mesh)),
        decisions_(resolve(plan, request.graph)),
        chain_(layer_chain(request.graph)) {
    for (Layer& layer : chain_.layers) {
      const OperatorDecision& d = decisions_[static_cast<std::size_t>(layer.op)];
      layer.algorithm = d.algorithm;
      layouts_.push_back(d.layout.value_or(replicated_layout(grid_)));
    }
  }

  std::vector<Move> all() {
    add_sums();
    std::vector<std::string> looked_at;
    for (std::size_t l = 0; l < chain_.layers.size(); ++l) {
      const Layer& layer = chain_.layers[l];
      const std::string place = place_of(layer);
      const bool is_known = std::ranges::find(looked_at, place) != looked_at.end();
      if (!layer.is_searched || layer.tied_weight >= 0 || is_known) continue;
      looked_at.push_back(place);
      for (const Layout& layout : neighbours(layouts_[l])) add(place, layouts_[l], layout);
    }
    return std::move(moves_);
  }

  /// All products that have nothing but local parts: scattered, reduced for all, or round a ring, those that do not
  /// both gather and scatter. Sums that all ranks have alone run under gradients of weights.
  Plan with_products(MatmulAlgorithm algorithm, int directions, PartialSums sum) const {
    std::vector<OperatorDecision> decisions = decisions_;
    for (std::size_t o = 0; o < decisions.size(); ++o) {
      if (graph_.operators[o].parameters.empty() || decisions[o].algorithm == MatmulAlgorithm::summa) continue;
      const bool on_ring = algorithm == MatmulAlgorithm::ring && graph_.operators[o].kind == OperatorKind::linear &&
                           may_go_round(decisions[o]);
      decisions[o].algorithm = on_ring ? algorithm : MatmulAlgorithm::local;
      decisions[o].directions = on_ring ? directions : 1;
      const bool is_layer = chain_.layers[static_cast<std::size_t>(chain_.home[o])].op == static_cast<int>(o);
      decisions[o].sum = is_layer ? sum : PartialSums::scatter;
    }
    Plan changed = with_decisions(decisions);
    if (sum == PartialSums::scatter) changed.overlap.layout = "none";
    return changed;
  }

 private:
  std::string place_of(const Layer& layer) const {
    return name_within_block(graph_, graph_.operators[static_cast<std::size_t>(layer.op)]);
  }

  /// Layers at @p place that have layout @p from, and those that share their weights, take @p to.
  void add(const std::string& place, const Layout& from, const Layout& to) {
    std::vector<Layout> layouts = layouts_;
    for (std::size_t l = 0; l < layouts.size(); ++l) {
      const int first_user = chain_.layers[l].tied_weight;
      if (first_user >= 0) {
        layouts[l] = layouts[static_cast<std::size_t>(first_user)];
      } else if (place_of(chain_.layers[l]) == place && layouts_[l] == from) {
        layouts[l] = to;
      }
    }
    moves_.push_back({fmt::format("{}: {}", place, to_string(to)), with_layouts(layouts)});
  }

  /// Operators at the home of a layer follow it, and states stay sharded as they were over the copies that there are.
  /// A product that may not go round with its new layout does not.
  Plan with_layouts(const std::vector<Layout>& layouts) const {
    std::vector<OperatorDecision> decisions = decisions_;
    for (std::size_t o = 0; o < decisions.size(); ++o) {
      OperatorDecision& d = decisions[o];
      if (!d.layout) continue;
      const auto home = static_cast<std::size_t>(chain_.home[o]);
      const Layer& layer = chain_.layers[home];
      const bool is_layer = layer.op == static_cast<int>(o);
      const Factor before = copies_of_weight(*d.layout, d.algorithm);
      d.layout = is_layer ? layouts[home] : home_layout(local_layout(layer, layouts[home]), grid_);
      if (d.algorithm == MatmulAlgorithm::ring && !may_go_round(d)) {
        d.algorithm = MatmulAlgorithm::local;
        d.directions = 1;
      }
      d.state = carried_over(d.state, before, copies_of_weight(*d.layout, d.algorithm));
    }
    return with_decisions(decisions);
  }

  void add_sums() {
    const auto add_way = [&](std::string words, MatmulAlgorithm algorithm, int directions, PartialSums sum) {
      moves_.push_back({std::move(words), with_products(algorithm, directions, sum)});
    };
    add_way("sums scattered", MatmulAlgorithm::local, 1, PartialSums::scatter);
    add_way("sums all-reduced", MatmulAlgorithm::local, 1, PartialSums::all_reduce);
    add_way("products on rings in one direction", MatmulAlgorithm::ring, 1, PartialSums::scatter);
    add_way("products on rings in both directions", MatmulAlgorithm::ring, 2, PartialSums::scatter);
  }

  Plan with_decisions(const std::vector<OperatorDecision>& decisions) const {
    Plan plan = plan_;
    plan.operators = rules_of_decisions(graph_, decisions, plan.recompute);
    return plan;
  }

  const ModelGraph& graph_;
  const Plan& plan_;
  Factor grid_;
  std::vector<OperatorDecision> decisions_;
  LayerChain chain_;
  std::vector<Layout> layouts_;  ///< by layer
  std::vector<Move> moves_;
};

}  // namespace

Plan on_rings(const PlanRequest& request, const Plan& plan) {
  return LayoutMoves(request, plan).with_products(MatmulAlgorithm::ring, 2, PartialSums::scatter);
}

std::vector<Move> moves_of_tensor(const PlanRequest& request, const Plan& plan, std::span<const ParallelDegrees> all) {
  std::vector<Move> moves = moves_to_tensor_degrees(request, plan, all);
  if (!has_layouts(plan.mesh)) return moves;
  for (Move& move : LayoutMoves(request, plan).all()) moves.push_back(std::move(move));
  return moves;
}

}  // namespace strata
