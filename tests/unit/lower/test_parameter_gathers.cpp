/// @file
/// Which sharded parameters are gathered where and read by whom, read off orders in which micro-batches take turns.

#include <gmock/gmock.h>

#include "lower/states/parameter_gathers.hpp"
#include "partition/recomputation.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_parameter_gathers {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = GatherAction::Kind;

/// Three products one behind the other, each a segment; two micro-batches, two ranks that share every parameter.
struct Example {
  ModelGraph graph;
  Plan plan = asked(2, 2);
  StepOrder order;
  std::vector<SegmentRecomputation> recomputation{3};  ///< by segment

  Example() {
    graph.tensors = {{.name = "x", .role = TensorRole::image}, {.name = "y"}, {.name = "z"}, {.name = "out"}};
    for (int o = 0; o < 3; ++o) {
      graph.parameters.push_back({.name = std::string(1, static_cast<char>('a' + o)), .shape = {4}});
      graph.operators.push_back(
          {.name = "linear", .kind = OperatorKind::linear, .inputs = {o}, .outputs = {o + 1}, .parameters = {o}});
      graph.operators.back().block = o;
      graph.blocks.push_back({.first_operator = o, .num_operators = 1});
      order.shape.segments.push_back({.first_operator = o, .num_operators = 1, .parameters = {o}});
    }
    plan.overlap.gather = plan.overlap.gather_backward = "none";
    plan.schedule.micro_batches = order.shape.micro_batches = 2;
  }

  void pass(Pass pass, int segment, int micro_batch) {
    order.items.push_back({.pass = pass, .segment = segment, .micro_batch = micro_batch});
  }

  ParameterGathers gathers() const {
    const Factor both{2, 1};
    const FirstOfTwo rank(plan, graph,
                          {.factors = {.p = both, .g = both, .os = both}, .held = {0, 2}, .updated = {0, 2}});
    return parameter_gathers(order, recomputation, plan, graph, rank.groups);
  }
};

/// Parameters that are gathered before the kernels of an operator.
std::vector<int> before(const ParameterGathers& gathers, int item, int op) {
  std::vector<int> result;
  const ActionRange actions = gathers.of_operator.at(item, op).before;
  for (int a = actions.begin; a < actions.end; ++a) {
    if (gathers.actions[static_cast<std::size_t>(a)].kind == Kind::gather) {
      result.push_back(gathers.actions[static_cast<std::size_t>(a)].parameter);
    }
  }
  return result;
}
int copy_of(const ParameterGathers& gathers, int item, int op) {
  return gathers.of_operator.at(item, op).copies.front();
}

TEST(ParameterGathers, EachItemHasACopyOfItsOwnHoweverItemsTakeTurns) {
  Example example;
  for (const int segment : {0, 1}) {
    for (const int micro_batch : {0, 1}) example.pass(Pass::forward, segment, micro_batch);
  }
  const ParameterGathers gathers = example.gathers();
  EXPECT_THAT(before(gathers, 0, 0), ElementsAre(0));
  EXPECT_THAT(before(gathers, 1, 0), ElementsAre(0)) << "the first copy was let go";
  EXPECT_THAT(before(gathers, 2, 1), ElementsAre(1));
  EXPECT_NE(copy_of(gathers, 0, 0), copy_of(gathers, 1, 0));
  EXPECT_EQ(gathers.num_copies, 4);
}

TEST(ParameterGathers, ForwardGathersTheNextSegmentUnderThisOne) {
  Example example;
  example.plan.overlap.gather = "next_layer";
  for (const int segment : {0, 1, 2}) example.pass(Pass::forward, segment, 0);
  const ParameterGathers gathers = example.gathers();
  EXPECT_THAT(before(gathers, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(before(gathers, 1, 1), ElementsAre(2));
  EXPECT_THAT(before(gathers, 2, 2), IsEmpty());
  EXPECT_EQ(gathers.num_copies, 3);
}

TEST(ParameterGathers, WhereForwardsTakeTurnsWhatIsGatheredAheadServesTheFirstThatReadsIt) {
  Example example;
  example.plan.overlap.gather = "next_layer";
  for (const int segment : {0, 1, 2}) {
    for (const int micro_batch : {0, 1}) example.pass(Pass::forward, segment, micro_batch);
  }
  const ParameterGathers gathers = example.gathers();
  EXPECT_THAT(before(gathers, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(before(gathers, 1, 0), ElementsAre(0)) << "the second segment's is there";
  EXPECT_THAT(before(gathers, 2, 1), ElementsAre(2));
  EXPECT_THAT(before(gathers, 3, 1), ElementsAre(1));
}

TEST(ParameterGathers, BackwardGathersWhatItReadsNextAndNothingForTheFirstInput) {
  Example example;
  example.plan.overlap.gather_backward = "next_module";
  for (const int segment : {2, 1, 0}) example.pass(Pass::backward, segment, 0);
  const ParameterGathers gathers = example.gathers();
  EXPECT_THAT(before(gathers, 0, 2), ElementsAre(2, 1));
  EXPECT_THAT(before(gathers, 1, 1), IsEmpty());
  EXPECT_THAT(before(gathers, 2, 0), IsEmpty());
  EXPECT_EQ(copy_of(gathers, 2, 0), -1) << "the model's input has no gradient, so nobody reads the weight";
}

TEST(ParameterGathers, LastStepsUpdatesAreSpreadOnceJustBeforeTheFirstGather) {
  Example example;
  example.plan.overlap.broadcast = "next_forward";
  for (const int micro_batch : {0, 1}) example.pass(Pass::forward, 1, micro_batch);
  const ParameterGathers gathers = example.gathers();
  EXPECT_EQ(gathers.at_beginning, ActionRange{}) << "every parameter is sharded";
  ASSERT_EQ(gathers.actions.size(), 3U);
  EXPECT_EQ(gathers.actions[0].kind, Kind::spread_last_update);
  EXPECT_EQ(gathers.actions[1].kind, Kind::gather);
  EXPECT_EQ(gathers.actions[2].kind, Kind::gather);
}

TEST(ParameterGathers, WhatARecomputationHasGatheredStaysForBackwardOrIsGatheredAgain) {
  for (const bool again : {false, true}) {
    Example example;
    example.plan.gathered_after_recompute = again ? "regather" : "keep";
    // Backward reads y, which forward of the block has forgotten: its second operator runs again for the third.
    example.graph.blocks[1] = {.first_operator = 1, .num_operators = 2};
    example.graph.operators[2].block = 1;
    example.order.shape.segments[1] = {
        .first_operator = 1, .num_operators = 2, .recomputed = true, .parameters = {1, 2}};
    example.order.shape.segments.pop_back();
    const std::vector<Recompute> kinds(3, Recompute::block);
    example.recomputation = recomputation_by_segment(example.order.shape, recomputed_regions(example.graph, kinds, {}));
    EXPECT_THAT(example.recomputation[1].runs_again, ElementsAre(1));
    example.pass(Pass::recompute, 1, 0);
    example.pass(Pass::backward, 1, 0);
    const ParameterGathers gathers = example.gathers();
    EXPECT_THAT(before(gathers, 0, 1), ElementsAre(1));
    EXPECT_THAT(before(gathers, 1, 2), ElementsAre(2));
    EXPECT_EQ(before(gathers, 1, 1).empty(), !again);
    EXPECT_EQ(copy_of(gathers, 0, 1) == copy_of(gathers, 1, 1), !again);
  }
}

}  // namespace
}  // namespace strata::test_parameter_gathers
