/// @file
/// Where the hops of quantised reductions are added up, read off orders made by hand.

#include <gmock/gmock.h>

#include "lower/states/quantized_reduction.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_quantized_reductions {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Sum = QuantizedReductions::Sum;

/// A segment an operator; all but the third have a parameter. Rank 0 of two nodes of two, over which all is sharded.
struct OfFourOperators {
  ModelGraph graph;
  Plan plan;
  StepOrder order;

  OfFourOperators() {
    plan.mesh = {.nodes = 2, .ranks_per_node = 2, .axes = {}};
    plan.quantization.gradients = "int4";
    plan.overlap.reduce_scatter = "backward";
    for (int o = 0; o < 4; ++o) {
      graph.operators.push_back({.name = "op"});
      if (o != 2) {
        graph.operators.back().parameters = {static_cast<int>(graph.parameters.size())};
        graph.parameters.push_back({.name = "p", .shape = {10}});
      }
      order.shape.segments.push_back(
          {.first_operator = o, .num_operators = 1, .parameters = graph.operators.back().parameters});
    }
    for (const int s : {3, 2, 1, 0}) order.items.push_back({.pass = Pass::backward, .segment = s});
    order.items.push_back({.pass = Pass::update, .parameters = {0, 1, 2}});
  }

  QuantizedReductions reductions() const {
    constexpr Factor all{2, 2};
    const std::vector<ParameterShard> shards(graph.parameters.size(), {.factors = {.p = all, .g = all, .os = all}});
    ProgramBuilder builder(0, 4, {"compute", "communication"});
    const std::vector data{builder.add_group({"data", {0, 1, 2, 3}})};
    const ShardGroups groups(plan, shards, whole_grids(plan.mesh, 0), data, builder);
    return quantized_reductions(order, gradient_contributions(order, graph), plan, graph, shards, groups);
  }
};

TEST(QuantizedReductions, AHopIsAddedUpBehindTheNextOperatorThatBegins) {
  const QuantizedReductions reductions = OfFourOperators().reductions();
  ASSERT_EQ(reductions.all.size(), 3U);
  for (const QuantizedReduction& reduction : reductions.all) {
    EXPECT_EQ(reduction.chunk, 3);
    ASSERT_EQ(reduction.hops.size(), 2U);
    EXPECT_EQ(reduction.hops[0].num_packed, 4);
    EXPECT_EQ(reduction.hops[1].num_packed, 2);
  }
  const auto& behind = reductions.behind_operator;
  EXPECT_EQ(behind.size(), 2U) << "nothing behind the operator that begins none";
  EXPECT_THAT(behind.at({2, 1}), ElementsAre(Sum{0, 0}));
  EXPECT_THAT(behind.at({3, 0}), ElementsAre(Sum{0, 1}, Sum{1, 0}));
  EXPECT_THAT(reductions.behind_backward, ElementsAre(Sum{1, 1}, Sum{2, 0}, Sum{2, 1}));
  EXPECT_THAT(reductions.before_item, IsEmpty());
}

TEST(QuantizedReductions, AnUpdateInBackwardFindsNoneOnItsWay) {
  OfFourOperators example;
  example.order.items.insert(example.order.items.begin() + 3, {.pass = Pass::update, .parameters = {2}});
  const QuantizedReductions reductions = example.reductions();
  EXPECT_EQ(reductions.behind_operator.size(), 1U);
  EXPECT_THAT(reductions.behind_operator.at({2, 1}), ElementsAre(Sum{0, 0}));
  EXPECT_THAT(reductions.before_item.at(3), ElementsAre(Sum{0, 1}, Sum{1, 0}, Sum{1, 1}));
  EXPECT_THAT(reductions.behind_backward, ElementsAre(Sum{2, 0}, Sum{2, 1}));
}

TEST(QuantizedReductions, WithoutOverlapNoneHasAPlaceFurtherOn) {
  OfFourOperators example;
  example.plan.overlap.reduce_scatter = "none";
  const QuantizedReductions reductions = example.reductions();
  EXPECT_EQ(reductions.all.size(), 3U);
  EXPECT_THAT(reductions.behind_operator, IsEmpty());
  EXPECT_THAT(reductions.behind_backward, IsEmpty());
}

}  // namespace
}  // namespace strata::test_quantized_reductions
