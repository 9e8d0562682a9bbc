/// @file
/// Decisions written back as rules are read as the same decisions, of every mode's plan and of any mixture.

#include <gtest/gtest.h>

#include <random>

#include "models/model.hpp"
#include "planners/joint/decision_rules.hpp"

namespace strata::test_decision_rules {
namespace {

void expect_read_again(const Plan& plan, const ModelGraph& graph, const std::vector<OperatorDecision>& decisions) {
  Plan written = plan;
  written.operators = rules_of_decisions(graph, decisions, plan.recompute);
  const std::vector<OperatorDecision> read = resolve(written, graph);
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const std::string& name = graph.operators[o].name;
    EXPECT_EQ(read[o].recompute, decisions[o].recompute) << name;
    if (graph.operators[o].parameters.empty()) continue;
    EXPECT_EQ(read[o].state, decisions[o].state) << name;
    EXPECT_EQ(read[o].layout, decisions[o].layout) << name;
    EXPECT_EQ(read[o].algorithm, decisions[o].algorithm) << name;
    EXPECT_EQ(read[o].directions, decisions[o].directions) << name;
    EXPECT_EQ(read[o].sum, decisions[o].sum) << name;
    EXPECT_EQ(read[o].slices, decisions[o].slices) << name;
    EXPECT_EQ(read[o].slice_state, decisions[o].slice_state) << name;
  }
}

TEST(DecisionRules, OfOneStateAndNothingElseAreOneRule) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4});
  Plan plan;
  plan.mesh.ranks_per_node = 4;
  plan.mesh.axes = {{"data", 4}};
  const StateFactors sharded{.p = {4, 1}, .g = {4, 1}, .os = {4, 1}};
  plan.operators = {{.match = "block[0..3].attn.*", .state = sharded}, {.match = "*", .state = sharded}};
  EXPECT_EQ(rules_of_decisions(graph, resolve(plan, graph), plan.recompute),
            (std::vector<OperatorRule>{{.match = "*", .state = sharded}}));
  plan.operators.clear();
  EXPECT_TRUE(rules_of_decisions(graph, resolve(plan, graph), plan.recompute).empty());
}

TEST(DecisionRules, NeighbouringBlocksThatAgreeShareOne) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4});
  Plan plan;
  plan.operators = {{.match = "block[1..2].*", .recompute = Recompute::block}};
  const std::vector<OperatorDecision> decisions = resolve(plan, graph);
  const std::vector<OperatorRule> rules = rules_of_decisions(graph, decisions, Recompute::none);
  ASSERT_FALSE(rules.empty());
  for (const OperatorRule& rule : rules) EXPECT_TRUE(rule.match.starts_with("block[1..2].")) << rule.match;
  expect_read_again(plan, graph, decisions);
}

TEST(DecisionRules, OfAnythingAreReadAsTheSame) {
  std::mt19937 random(1);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  for (const char* model : {"gpt-nano", "llama-nano", "vgg-nano", "vit-nano"}) {
    const ModelGraph graph = build_model({.name = model});
    for (int i = 0; i < 50; ++i) {
      Plan plan;
      plan.mesh.ranks_per_node = 4;
      plan.recompute = static_cast<Recompute>(below(4));
      std::vector<OperatorDecision> decisions(graph.operators.size());
      for (OperatorDecision& d : decisions) {
        d.state.os = {1 << below(3), 1};
        if (below(2) == 1) d.layout = Layout{.p0 = {2, 1}, .p1 = {1 << below(2), 1}, .p2 = {1 << below(2), 1}};
        if (below(3) == 1) d.algorithm = MatmulAlgorithm::ring;
        d.directions = 1 + below(2);
        d.sum = static_cast<PartialSums>(below(2));
        d.recompute = static_cast<Recompute>(below(4));
        if (below(4) == 1) {
          d.slices = 2;
          d.slice_state = {"zdp", "dp"};
        }
      }
      expect_read_again(plan, graph, decisions);
    }
  }
}

}  // namespace
}  // namespace strata::test_decision_rules
