/// @file
/// What `auto` changes of states in one move.

#include <gtest/gtest.h>

#include <algorithm>

#include "models/model.hpp"
#include "planners/joint/moves.hpp"
#include "planners/planner.hpp"

namespace strata::test_state_moves {
namespace {

/// Of a small model on two nodes of four ranks, where states are replicated.
struct Example {
  ModelGraph graph = build_model({.name = "gpt-nano", .layers = 2});
  Cluster cluster;
  Plan replicated;

  Example() {
    replicated.strategy = "auto";
    replicated.mesh = {.nodes = 2, .ranks_per_node = 4, .axes = {{"data", 8}}};
    replicated.global_batch = 8;
  }
  PlanRequest request_of(const char* mode) const {
    return {.graph = graph, .cluster = cluster, .base = replicated, .options = find_planner(mode).with_defaults({})};
  }
};

/// A plan that spreads nothing says nothing of how: where parts come to be spread they are under the next forward, and
/// where they are already it is a decision of its own.
TEST(StateMoves, PartsThatComeToBeSpreadTravelUnderTheNextForward) {
  const Example example;
  const ModelGraph& graph = example.graph;
  Plan spread = example.replicated;
  spread.operators = {{.match = "*", .state = StateFactors{.p = {}, .g = {}, .os = {4, 1}}}};
  const auto spreads = [&](const Plan& plan) {
    return std::ranges::any_of(resolve(plan, graph), [](const OperatorDecision& d) { return d.state.os != d.state.p; });
  };
  int num_spread = 0;
  for (const Plan& from : {example.replicated, spread}) {
    for (const Move& move : moves_of_states(example.request_of("auto"), from)) {
      if (!spreads(move.plan)) continue;
      EXPECT_EQ(move.plan.overlap.broadcast, spreads(from) ? "none" : "next_forward") << move.words;
      ++num_spread;
    }
  }
  EXPECT_GT(num_spread, 10);
}

/// From parameters that are sharded in a node to ZeRO-2's: neither whole parameters, beside which no whole gradients
/// have room, nor gradients that are scattered as they come are worth anything alone.
TEST(StateMoves, OneLeadsFromShardedParametersToZero2) {
  const Example example;
  const ModelGraph& graph = example.graph;
  Plan in_a_node = example.replicated;
  in_a_node.operators = {{.match = "*", .state = StateFactors{.p = {4, 1}, .g = {4, 1}, .os = {4, 1}}}};
  const Plan zero2 = find_planner("zero2").plan(example.request_of("zero2"));
  const std::vector<OperatorDecision> states = resolve(zero2, graph);
  const std::vector<Move> moves = moves_of_states(example.request_of("auto"), in_a_node);
  EXPECT_TRUE(std::ranges::any_of(moves, [&](const Move& move) {
    return resolve(move.plan, graph) == states && move.plan.optimizer == zero2.optimizer;
  }));
}

}  // namespace
}  // namespace strata::test_state_moves
