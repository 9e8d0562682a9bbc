/// @file
/// ZeRO, MiCS and ZeRO++ as fixed factors; what the option `overlap` of all sharding modes means.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "sharded.hpp"

namespace strata::test_sharded_modes {
namespace {

using testing::HasSubstr;

const ModelGraph& nano() {
  static const ModelGraph graph = build_model({.name = "gpt-nano"});
  return graph;
}

TEST(ShardedModes, FactorsOnEightTimesFour) {
  const Plan base = asked_on({8, 4}, 2);
  const Factor all{8, 4}, node{8, 1};
  EXPECT_EQ(state_of(planned("zero1", nano(), base)), (StateFactors{.os = all}));
  EXPECT_EQ(state_of(planned("zero2", nano(), base)), (StateFactors{.g = all, .os = all}));
  EXPECT_EQ(state_of(planned("zero3", nano(), base)), (StateFactors{.p = all, .g = all, .os = all}));
  EXPECT_EQ(state_of(planned("mics", nano(), base)), (StateFactors{.p = node, .g = node, .os = node}));
  const Factor two_nodes{8, 2};
  EXPECT_EQ(state_of(planned("mics", nano(), base, {{"group", std::string("8x2")}})),
            (StateFactors{.p = two_nodes, .g = two_nodes, .os = two_nodes}));
  EXPECT_EQ(state_of(planned("zeropp", nano(), base)),
            (StateFactors{.p = all, .g = all, .os = all, .p_backward = node}));
  const Factor pair{2, 1};
  EXPECT_EQ(state_of(planned("zeropp", nano(), base, {{"secondary", std::string("2x1")}})).p_backward, pair);
}

TEST(ShardedModes, StatesAreCutEvenlyAndGatheredAgain) {
  for (const char* mode : {"zero1", "zero2", "zero3", "mics", "zeropp"}) {
    const Plan plan = planned(mode, nano(), asked_on({2, 2}, 1));
    EXPECT_EQ(plan.optimizer.sharding, "intra_tensor") << mode;
    EXPECT_EQ(plan.optimizer.spread, "all_gather") << mode;
    EXPECT_EQ(plan.gathered_after_recompute, "regather") << mode;
    EXPECT_EQ(plan.mesh.axes, (std::vector<MeshAxis>{{"data", 4}})) << mode;
    EXPECT_NO_THROW(verify(plan, nano())) << mode;
  }
  EXPECT_EQ(planned("zero1", nano(), asked_on({2, 2}, 1)).optimizer.gradients, "reduce_scatter");
  EXPECT_EQ(
      planned("zero1", nano(), asked_on({2, 2}, 1), {{"gradients", std::string("all_reduce")}}).optimizer.gradients,
      "all_reduce");
}

TEST(ShardedModes, Zero3CutsEveryLinearAndTheTableOfATiedHead) {
  const Plan plan = planned("zero3", nano(), asked_on({4, 1}, 1), {{"slices", std::int64_t{4}}});
  EXPECT_NO_THROW(verify(plan, nano()));
  const std::vector<OperatorDecision> decisions = resolve(plan, nano());
  for (std::size_t o = 0; o < decisions.size(); ++o) {
    const Operator& op = nano().operators[o];
    const bool is_cut = op.kind == OperatorKind::linear || op.kind == OperatorKind::embedding;
    EXPECT_EQ(decisions[o].slices, is_cut ? 4 : 0) << op.name;
    EXPECT_EQ(decisions[o].state.p, (Factor{4, 1})) << op.name;
  }
}

TEST(ShardedModes, AGroupThatDoesNotFitIsRefused) {
  const auto refusal = [](const char* mode, const char* option, const char* value) -> std::string {
    try {
      planned(mode, nano(), asked_on({4, 2}, 1), {{option, std::string(value)}});
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("mics", "group", "3x1"), HasSubstr("mics on 8 ranks: p = 3x1 does not divide"));
  EXPECT_THAT(refusal("mics", "group", "2x2"), HasSubstr("takes 2 nodes but 2 of the 4 ranks"));
  EXPECT_THAT(refusal("zeropp", "secondary", "2x2"), HasSubstr("takes 2 nodes but 2 of the 4 ranks"));
}

TEST(ShardedModes, OverlapLevels) {
  struct Level {
    const char* word;
    const char* gather;
    const char* reduce_scatter;
    const char* all_reduce;
    const char* all_reduce_of_mics;
  };
  for (const Level& level : {Level{"none", "none", "none", "none", "none"},
                             {"gather", "next_layer", "grad_input", "none", "none"},
                             {"full", "next_layer", "grad_input", "backward", "backward"},
                             {"deepspeed", "next_layer", "none", "backward", "none"}}) {
    for (const char* mode : {"zero1", "zero2", "zero3", "mics", "zeropp", "amsp"}) {
      const Overlap overlap =
          planned(mode, nano(), asked_on({2, 1}, 1), {{"overlap", std::string(level.word)}}).overlap;
      EXPECT_EQ(overlap.gather, level.gather) << mode << " " << level.word;
      EXPECT_EQ(overlap.gather_backward != "none", overlap.gather != "none") << mode << " " << level.word;
      EXPECT_EQ(overlap.reduce_scatter, level.reduce_scatter) << mode << " " << level.word;
      EXPECT_EQ(overlap.all_reduce, std::string(mode) == "mics" ? level.all_reduce_of_mics : level.all_reduce)
          << mode << " " << level.word;
      EXPECT_EQ(overlap.broadcast, "none") << mode << " " << level.word;
    }
  }
}

TEST(ShardedModes, TheExperimentMayKeepBucketsOutOfBackward) {
  Plan base = asked_on({2, 1}, 1);
  base.overlap.all_reduce = "none";
  EXPECT_EQ(planned("zero1", nano(), base).overlap.all_reduce, "none");
}

}  // namespace
}  // namespace strata::test_sharded_modes
