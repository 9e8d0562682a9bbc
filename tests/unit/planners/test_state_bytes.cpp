/// @file
/// What a rank holds from step to step under given factors, before anything is lowered: AMSP's 2Φ/s_p and 12Φ/s_os, and
/// what the Programs' persistent buffers are.

#include <gtest/gtest.h>

#include <numeric>

#include "lower/lower.hpp"
#include "models/model.hpp"
#include "planners/states/state_bytes.hpp"
#include "sharded.hpp"
#include "support/no_workspace.hpp"

namespace strata::test_state_bytes {
namespace {

std::int64_t persistent_bytes(const Plan& plan, const ModelGraph& graph, Category category) {
  std::int64_t most = 0;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : lower(plan, graph, rank, no_workspace).buffers) {
      if (buffer.persistent && buffer.category == category) bytes += buffer.size_bytes();
    }
    most = std::max(most, bytes);
  }
  return most;
}

TEST(StateBytes, AreThePersistentBuffersOfTheFullestRank) {
  for (const char* model : {"gpt-nano", "mlp-tiny"}) {
    const ModelGraph graph = build_model({.name = model});
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const char* sharding : {"inter_tensor", "intra_tensor"}) {
        Plan plan = asked_on({3, 2}, 1);
        plan.strategy = "amsp";
        plan.mesh.axes = {{"data", 6}};
        plan.dtypes = {dtype, dtype};
        plan.optimizer.sharding = sharding;
        plan.optimizer.spread = std::string_view(sharding) == "inter_tensor" ? "broadcast" : "all_gather";
        const StateBytes bytes(graph, plan);
        for (const StateFactors& state : legal_states({3, 2})) {
          plan.operators = {{.match = "*", .state = state}};
          EXPECT_EQ(bytes.parameters(state), persistent_bytes(plan, graph, Category::parameter))
              << model << ", " << sharding << ", " << to_string(state);
          EXPECT_EQ(bytes.optimizer(state), persistent_bytes(plan, graph, Category::optimizer))
              << model << ", " << sharding << ", " << to_string(state);
        }
      }
    }
  }
}

TEST(StateBytes, AreThePapersFormulaWhereSizesDivide) {
  const ModelGraph graph = build_model({.name = "llama-7b"});
  const std::int64_t phi = graph.num_parameters();
  const Plan plan = asked_on({8, 128}, 4);
  const StateBytes bytes(graph, plan);
  for (const StateFactors& state : legal_states({8, 128})) {
    EXPECT_EQ(bytes.parameters(state), 2 * phi / state.p.total()) << to_string(state);
    EXPECT_EQ(bytes.optimizer(state), 12 * phi / state.os.total()) << to_string(state);
  }
}

TEST(StateBytes, InterTensorIsTheFullestOwner) {
  ModelGraph graph = build_model({.name = "mlp-tiny"});  // weights 64·48, 32·64, 10·32 and biases 64, 32, 10
  Plan plan = asked_on({2, 1}, 2);
  plan.optimizer.sharding = "inter_tensor";
  std::vector<std::int64_t> sizes;
  for (const Parameter& p : graph.parameters) sizes.push_back(p.num_elements());
  std::ranges::sort(sizes);
  ASSERT_EQ(sizes, (std::vector<std::int64_t>{10, 32, 64, 320, 2048, 3072}));
  // 3072 | 2048; 320, 64, 32 and 10 all to the second.
  EXPECT_EQ(StateBytes(graph, plan).optimizer({.os = {2, 1}}), 12 * 3072);
  // Never below the largest tensor, however many share.
  Plan many = asked_on({8, 8}, 2);
  many.optimizer.sharding = "inter_tensor";
  EXPECT_EQ(StateBytes(graph, many).optimizer({.os = {8, 8}}), 12 * 3072);
  EXPECT_EQ(StateBytes(graph, many).optimizer({.p = {8, 1}, .g = {8, 1}, .os = {8, 8}}), 12 * 3072 / 8);
}

}  // namespace
}  // namespace strata::test_state_bytes
