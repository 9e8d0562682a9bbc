/// @file
/// cuDNN itself plans convolutions with bias and ReLU for GPUs that are described to it: it recognises the graph, has
/// engines of equal bits for it, and none needs more workspace than lowering plans.

#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "cuda/described_gpu.hpp"
#include "exec/cuda/convolution_plan.hpp"
#include "exec/device/workspace.hpp"

namespace strata::cuda {
namespace {

ConvolutionDims dims(std::int64_t images, std::int64_t size, std::int64_t in, std::int64_t out) {
  return {.images = images,
          .height = size,
          .width = size,
          .in = in,
          .out = out,
          .dtype = DType::bf16,
          .bias = true,
          .relu = true};
}

/// By compute capability · 100: Ampere, Hopper, Blackwell.
class ConvolutionPlans : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Gpus, ConvolutionPlans, testing::Values(800, 900, 1000));

TEST_P(ConvolutionPlans, FitTheWorkspaceThatLoweringPlans) {
  const BackendDescriptor device = gpu(GetParam());
  // VGG-13's first with whole vectors of channels, and one of its last.
  for (const ConvolutionDims& d : {dims(128, 224, 64, 64), dims(128, 14, 512, 512)}) {
    ASSERT_STREQ(fused_convolution_condition(d), "");
    EXPECT_NO_THROW(ConvolutionPlan({.properties = device.get()}, d, true, convolution_workspace_bytes(d))) << d.height;
  }
}

TEST(ConvolutionPlan, ServesNoOtherTypeAndNoOtherChannels) {
  EXPECT_STRNE(fused_convolution_condition(dims(128, 224, 3, 64)), "") << "VGG's first";
  ConvolutionDims d = dims(2, 8, 16, 16);
  d.dtype = DType::f32;
  EXPECT_STRNE(fused_convolution_condition(d), "");
  d = dims(2, 8, 16, 16);
  d.relu = false;
  EXPECT_STRNE(fused_convolution_condition(d), "");
}

TEST(ConvolutionPlan, ThatDoesNotFitIsRefusedWithItsSizes) {
  const BackendDescriptor hopper = gpu(900);
  try {
    const ConvolutionPlan plan({.properties = hopper.get()}, dims(2, 8, 16, 24), true, -1);
    FAIL() << plan.workspace_bytes() << " bytes";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("cuDNN has no deterministic convolution with bias and ReLU of 2 x 8x8x16 "
                                             "to 24 channels in bf16 within -1 bytes: "));
  }
}

}  // namespace
}  // namespace strata::cuda
