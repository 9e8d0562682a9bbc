/// @file
/// cuDNN itself plans our graphs of attention for GPUs that are described to it: it recognises them, has engines for
/// them, and none needs more workspace than lowering plans. A driver that takes any kernel stands for the GPU's.

#include <cudnn.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cuda/described_gpu.hpp"
#include "exec/cuda/attention_plan.hpp"
#include "exec/device/attention_choice.hpp"

namespace strata::cuda {
namespace {

AttentionDims dims(std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t head_dim, bool causal) {
  return {.batch = batch,
          .seq = seq,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .dtype = DType::bf16,
          .causal = causal};
}

/// By compute capability · 100: Ampere, Hopper, Blackwell.
class AttentionPlans : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Gpus, AttentionPlans, testing::Values(800, 900, 1000));

TEST_P(AttentionPlans, FitTheWorkspaceThatLoweringPlans) {
  const BackendDescriptor device = gpu(GetParam());
  // cuDNN compiles for seconds: one GPU has all shapes.
  std::vector<AttentionDims> shapes(2, dims(2, 77, 4, 2, 24, true));
  shapes.back().dropout_probability = 0.1F;
  if (GetParam() == 900) {
    shapes.insert(shapes.end(), {dims(2, 2, 4, 4, 64, true), dims(1, 257, 8, 2, 128, false)});
  }
  for (const AttentionDims& d : shapes) {
    ASSERT_EQ(cudnn_attention_condition(d), "");
    const std::string which =
        fmt::format("{} positions, {} heads of {}, {} dropped", d.seq, d.num_heads, d.head_dim, d.dropout_probability);
    EXPECT_NO_THROW(
        AttentionPlan({.properties = device.get()}, AttentionPass::forward, d, true, cudnn_forward_workspace_bytes))
        << which;
    for (const bool deterministic : {false, true}) {
      EXPECT_NO_THROW(AttentionPlan({.properties = device.get()}, AttentionPass::backward, d, deterministic,
                                    cudnn_backward_workspace(d, deterministic).library))
          << which;
    }
  }
}

/// The workspace is not planned by guess: the library takes what it is thought to take.
TEST(AttentionPlan, TakesTheWorkspaceOfItsAlgorithm) {
  const BackendDescriptor hopper = gpu(900);
  const AttentionDims d = dims(1, 4096, 32, 32, 128, true);
  const auto bytes = [&](bool deterministic) {
    return AttentionPlan({.properties = hopper.get()}, AttentionPass::backward, d, deterministic, std::int64_t{1} << 40)
        .workspace_bytes();
  };
  const std::int64_t score_gradients = std::int64_t{32} * 4096 * 4096 * size_of(DType::bf16);
  EXPECT_GE(bytes(true), score_gradients);
  EXPECT_LE(bytes(true), score_gradients + cudnn_forward_workspace_bytes);
  EXPECT_LE(bytes(false), cudnn_forward_workspace_bytes);
}

TEST(AttentionPlan, ThatDoesNotFitIsRefusedWithWhatItWouldTake) {
  const BackendDescriptor hopper = gpu(900);
  try {
    const AttentionPlan plan({.properties = hopper.get()}, AttentionPass::backward, dims(1, 128, 4, 2, 64, true), true,
                             1000);
    FAIL() << plan.workspace_bytes() << " bytes";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("cuDNN has no deterministic gradient of attention of 1 x 128 positions, "
                                             "4 heads of 64 elements and 2 of keys within 1000 bytes: its engines "
                                             "need "));
  }
}

}  // namespace
}  // namespace strata::cuda
