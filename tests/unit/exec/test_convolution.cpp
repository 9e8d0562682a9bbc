/// @file
/// Convolution and its gradients against double, over strides, paddings, kernels and types; exact on integers.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/convolution.hpp"
#include "unit/exec/convolution_layer.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_convolution {
namespace {

using test::ConvolutionLayer;
using test::integer_tensor;
using test::random_tensor;
using test::relative_error;
using test::tolerance;

constexpr std::pair<DType, DType> types[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}};

TEST(Convolution, ForwardAndGradientsAtOddShapes) {
  const ConvolutionDims shapes[] = {
      {.images = 2, .height = 7, .width = 9, .in = 3, .out = 5},                  // first layer
      {.images = 3, .height = 8, .width = 8, .in = 16, .out = 32},                // vector widths
      {.images = 1, .height = 11, .width = 6, .in = 19, .out = 33, .stride = 2},  // strided
      {.images = 2,
       .height = 13,
       .width = 13,
       .in = 3,
       .out = 8,
       .kernel_h = 7,
       .kernel_w = 7,
       .stride = 2,
       .padding = 3},
      {.images = 2, .height = 5, .width = 4, .in = 24, .out = 17, .kernel_h = 1, .kernel_w = 1, .padding = 0},  // 1 x 1
      {.images = 2, .height = 9, .width = 10, .in = 6, .out = 7, .kernel_h = 3, .kernel_w = 2, .padding = 0},
      {.images = 4, .height = 2, .width = 2, .in = 64, .out = 48},  // tiny image
  };
  for (ConvolutionDims dims : shapes) {
    for (const auto& [dtype, gradient_dtype] : types) {
      for (const bool option : {false, true}) {
        dims.dtype = dtype;
        dims.gradient_dtype = gradient_dtype;
        dims.bias = option;
        dims.relu = option;
        SCOPED_TRACE(testing::Message() << dims.in << "->" << dims.out << " kernel " << dims.kernel_h << " stride "
                                        << dims.stride << " " << to_string(dtype) << " gradients "
                                        << to_string(gradient_dtype) << " bias, relu, accumulate " << option);
        ConvolutionLayer layer(dims, random_tensor);
        const auto expected = layer.expected(option);
        layer.run(option);
        EXPECT_LT(relative_error(layer.y.values(), expected.y), tolerance(dtype));
        EXPECT_LT(relative_error(layer.dx.values(), expected.dx), tolerance(dtype));
        EXPECT_LT(relative_error(layer.dweight.values(), expected.dweight), tolerance(gradient_dtype));
        if (option) {
          EXPECT_LT(relative_error(layer.dbias.values(), expected.dbias), tolerance(gradient_dtype));
        }
      }
    }
  }
}

TEST(Convolution, IntegersAreExactAndRepeatable) {
  for (const auto& [dtype, gradient_dtype] : types) {
    const ConvolutionDims dims{.images = 2,
                               .height = 6,
                               .width = 7,
                               .in = 4,
                               .out = 6,
                               .dtype = dtype,
                               .gradient_dtype = gradient_dtype,
                               .bias = true,
                               .relu = true};
    ConvolutionLayer layer(dims, integer_tensor);
    const auto expected = layer.expected(true);
    layer.run(true);
    EXPECT_EQ(layer.y.values(), expected.y);
    EXPECT_EQ(layer.dx.values(), expected.dx);
    EXPECT_EQ(layer.dweight.values(), expected.dweight);
    EXPECT_EQ(layer.dbias.values(), expected.dbias);

    ConvolutionLayer once(dims, random_tensor);
    ConvolutionLayer again(dims, random_tensor);
    once.run(true);
    again.run(true);
    EXPECT_EQ(once.y.bits(), again.y.bits());
    EXPECT_EQ(once.dx.bits(), again.dx.bits());
    EXPECT_EQ(once.dweight.bits(), again.dweight.bits());
  }
}

TEST(Convolution, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(
      convolution_forward_workspace_bytes({.images = 1, .height = 2, .width = 2, .in = 3, .out = 4, .padding = 0}),
      InternalError);
  EXPECT_THROW(convolution_forward_workspace_bytes(
                   {.images = 1, .height = 4, .width = 4, .in = 3, .out = 4, .dtype = DType::u8}),
               InternalError);
  const ConvolutionDims dims{.images = 1, .height = 5, .width = 5, .in = 20, .out = 20};
  ConvolutionLayer layer(dims, random_tensor);
  ASSERT_GT(convolution_backward_weight_workspace_bytes(dims, true), 0);
  EXPECT_THROW(
      convolution_backward_weight(dims, layer.dy.data(), layer.x.data(), layer.dweight.data(), nullptr, true, {}),
      InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_convolution
