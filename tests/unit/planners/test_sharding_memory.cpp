/// @file
/// Bytes of a rank before lowering: against the peak of the Program that is lowered where nothing is sharded, and
/// against AMSP's 2Φ/s_p + 2Φ/s_g + 12Φ/s_os where something is.

#include <gtest/gtest.h>

#include <numeric>

#include "lower/lower.hpp"
#include "models/model.hpp"
#include "planners/states/memory.hpp"
#include "sharded.hpp"

namespace strata {
namespace {

TEST(ShardingMemory, IsTheProgramsPeakWhereNothingIsSharded) {
  struct Case {
    const char* model;
    double tolerance;  ///< of a nano model, whose gradients fill no bucket, a layer is a large part
  };
  for (const Case& c : {Case{"llama-nano", 0.03}, {"gpt-nano", 0.03}, {"gpt2-small", 0.015}, {"llama-7b", 0.001}}) {
    const ModelGraph graph = build_model({.name = c.model});
    for (const int micro_batches : {1, 2}) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          Plan plan = asked_on({1, 1}, micro_batches);
          plan.mesh.axes = {{"data", 1}};
          plan.recompute = recompute;
          plan.dtypes = {dtype, dtype};
          const Program program = lower(plan, graph, 0, [](const Program&, const Instruction&) { return 0; });
          const auto peak = static_cast<double>(memory_peak(program).total_bytes);
          const auto account = static_cast<double>(StateMemory(graph, plan).account({}).total());
          EXPECT_NEAR(account / peak, 1.0, c.tolerance)
              << c.model << ", " << micro_batches << " micro-batches, recompute " << to_string(recompute) << ", "
              << to_string(dtype);
        }
      }
    }
  }
}

TEST(ShardingMemory, IsTheProgramsPeakWithinFourPercentWhereStatesAreSharded) {
  const ModelGraph graph = build_model({.name = "llama-7b"});
  for (const int micro_batches : {1, 2}) {
    Plan plan = asked_on({4, 2}, micro_batches);
    plan.mesh.axes = {{"data", 8}};
    plan.overlap.gather = "next_layer";
    plan.overlap.gather_backward = "next_module";
    plan.overlap.reduce_scatter = "grad_input";
    const StateMemory memory(graph, plan);
    for (const StateFactors& state : legal_states({4, 2})) {
      plan.operators = {{.match = "*", .state = state}};
      const Program program = lower(plan, graph, 0, [](const Program&, const Instruction&) { return 0; });
      const auto peak = static_cast<double>(memory_peak(program).total_bytes);
      const auto account = static_cast<double>(memory.account(state).total());
      EXPECT_GE(account, 0.998 * peak) << to_string(state);
      EXPECT_LE(account, 1.04 * peak) << to_string(state);
      EXPECT_LE(memory.account(state).least, memory_peak(program).total_bytes) << to_string(state);
      EXPECT_GE(static_cast<double>(memory.account(state).least), 0.96 * peak) << to_string(state);
    }
  }
}

TEST(ShardingMemory, IntraTensorStatesAreThePapersFormulaWhereSizesDivide) {
  const ModelGraph graph = build_model({.name = "llama-7b"});
  const std::int64_t phi = graph.num_parameters();
  const Plan plan = asked_on({8, 128}, 4);
  const StateMemory memory(graph, plan);
  for (const StateFactors& state : legal_states({8, 128})) {
    const MemoryAccount account = memory.account(state);
    EXPECT_EQ(account.parameters, 2 * phi / state.p.total()) << to_string(state);
    EXPECT_EQ(account.gradients, 2 * phi / state.g.total()) << to_string(state);
    EXPECT_EQ(account.optimizer, 12 * phi / state.os.total()) << to_string(state);
  }
}

TEST(ShardingMemory, ShardsAreRoundedUpATensor) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  Plan plan = asked_on({3, 1}, 2);
  plan.dtypes = {DType::f32, DType::f32};
  std::int64_t thirds = 0;
  for (const Parameter& p : graph.parameters) thirds += (p.num_elements() + 2) / 3;
  ASSERT_NE(3 * thirds, graph.num_parameters());
  const MemoryAccount account = StateMemory(graph, plan).account({.p = {3, 1}, .g = {3, 1}, .os = {3, 1}});
  EXPECT_EQ(account.parameters, 4 * thirds);
  EXPECT_EQ(account.gradients, 4 * thirds);
  EXPECT_EQ(account.optimizer, 8 * thirds);
}

TEST(ShardingMemory, InterTensorIsTheFullestOwner) {
  ModelGraph graph = build_model({.name = "mlp-tiny"});  // weights 64·48, 32·64, 10·32 and biases 64, 32, 10
  Plan plan = asked_on({2, 1}, 2);
  plan.optimizer.sharding = "inter_tensor";
  const StateFactors state{.os = {2, 1}};
  std::vector<std::int64_t> sizes;
  for (const Parameter& p : graph.parameters) sizes.push_back(p.num_elements());
  std::ranges::sort(sizes);
  ASSERT_EQ(sizes, (std::vector<std::int64_t>{10, 32, 64, 320, 2048, 3072}));
  // 3072 | 2048; 320, 64, 32 and 10 all to the second.
  EXPECT_EQ(StateMemory(graph, plan).account(state).optimizer, 12 * 3072);
  // Never below the largest tensor, however many share.
  Plan many = asked_on({8, 8}, 2);
  many.optimizer.sharding = "inter_tensor";
  EXPECT_EQ(StateMemory(graph, many).account({.os = {8, 8}}).optimizer, 12 * 3072);
  EXPECT_EQ(StateMemory(graph, many).account({.p = {8, 1}, .g = {8, 1}, .os = {8, 8}}).optimizer, 12 * 3072 / 8);
}

}  // namespace
}  // namespace strata
