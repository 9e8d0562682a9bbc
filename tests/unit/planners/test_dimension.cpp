/// @file
/// Dimensions of `auto` that are left out: what a plan decides there becomes what the experiment asks, or the plan is
/// none of the space; everything else stays.

#include <gmock/gmock.h>

#include "planners/joint/dimension.hpp"
#include "support/refusal.hpp"

namespace strata::test_dimension {
namespace {

/// Decides something in every dimension.
Plan everything() {
  Plan plan;
  plan.mesh = {
      .nodes = 2, .ranks_per_node = 4, .axes = {{"stage", 2}}, .placement = "leaf-first", .node_order = {1, 0}};
  plan.stages.count = 2;
  plan.operators = {
      {.match = "*", .state = StateFactors{.os = {4, 1}}, .layout = Layout{.p0 = {2, 1}, .p1 = {2, 1}}},
      {.match = "head", .slices = 2, .slice_state = {"zdp", "dp"}, .recompute = Recompute::block},
  };
  plan.recompute = Recompute::after_communication;
  plan.schedule.sub_batches = 2;
  plan.schedule.cross_pass = true;
  plan.overlap.gather = "next_layer";
  plan.optimizer.gradients = "reduce_scatter";
  plan.quantization.weights = "int8";
  return plan;
}

TEST(Dimension, NothingLeftOutLeavesAllButQuantization) {
  Plan expected = everything();
  expected.quantization = {};
  EXPECT_EQ(Dimensions("none").within(everything(), Plan{}), expected);
}

TEST(Dimension, DegreesThatAreLeftOutMakeNoPlan) {
  EXPECT_FALSE(Dimensions("stages").within(everything(), Plan{}));
  EXPECT_FALSE(Dimensions("tensor").within(everything(), Plan{}));
  Plan whole = everything();
  whole.stages.count = 1;
  whole.operators.front().layout = Layout{.p0 = {4, 2}};
  EXPECT_TRUE(Dimensions("stages,tensor").within(whole, Plan{}));
}

TEST(Dimension, OthersBecomeWhatTheExperimentAsks) {
  Plan base;
  base.recompute = Recompute::whole_block;
  base.overlap.bucket_bytes = 1000;
  base.optimizer.clip_norm = 1.0;
  Plan expected = everything();
  expected.quantization = {};
  const auto expect = [&](const char* without) {
    EXPECT_EQ(Dimensions(without).within(everything(), base), expected) << without;
    expected = everything();
    expected.quantization = {};
  };
  expected.operators[0].state.reset();
  expected.optimizer = base.optimizer;
  expect("states");
  expected.operators[1].slices.reset();
  expected.operators[1].slice_state.clear();
  expect("slices");
  expected.operators[1].recompute.reset();
  expected.recompute = Recompute::whole_block;
  expect("recompute");
  expected.schedule = {};
  expect("sub_batches");
  expected.overlap = base.overlap;
  expect("overlap");
  expected.mesh.placement = "block";
  expected.mesh.node_order.clear();
  expect("placement");
  // A rule of which nothing is left goes, and passes cross over nothing where nothing is recomputed.
  expected.operators.pop_back();
  expected.recompute = Recompute::none;
  expected.schedule.cross_pass = false;
  base.recompute = Recompute::none;
  expect("slices,recompute");
}

TEST(Dimension, UnknownNamesAreRefusedWithTheKnownOnes) {
  EXPECT_THAT(user_error([] { Dimensions("states,colour"); }),
              testing::HasSubstr("strategy.without = \"states,colour\": no dimension `colour`; accepted: none, stages, "
                                 "tensor, states, slices, recompute, sub_batches, overlap, placement"));
  EXPECT_NE(user_error([] { Dimensions(""); }), "");
}

}  // namespace
}  // namespace strata::test_dimension
