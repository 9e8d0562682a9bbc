/// @file
/// Convolution and its gradients against double, over strides, paddings, kernels and types; exact on integers.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/convolution.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_convolution {
namespace {

using test::integer_tensor;
using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::tolerance;
using test::Workspace;

using Make = Tensor (*)(DType, std::int64_t, const char*);

struct Layer {
  ConvolutionDims dims;
  Tensor x, weight, bias, y, dy, dx, dweight, dbias;

  Layer(const ConvolutionDims& d, Make make)
      : dims(d),
        x(make(d.dtype, d.images * d.height * d.width * d.in, "x")),
        weight(make(d.dtype, d.out * d.kernel_h * d.kernel_w * d.in, "weight")),
        bias(make(d.dtype, d.out, "bias")),
        y(make(d.dtype, d.images * d.out_height() * d.out_width() * d.out, "y")),
        dy(make(d.dtype, y.size(), "dy")),
        dx(make(d.dtype, x.size(), "dx")),
        dweight(make(d.gradient_dtype, weight.size(), "dweight")),
        dbias(make(d.gradient_dtype, d.out, "dbias")) {}

  /// Calls body(index of y, index of x, index of weight) for every product of the convolution.
  template <typename Body>
  void for_products(Body&& body) const {
    for (std::int64_t image = 0; image < dims.images; ++image) {
      for (std::int64_t row = 0; row < dims.out_height(); ++row) {
        for (std::int64_t col = 0; col < dims.out_width(); ++col) {
          for (std::int64_t kh = 0; kh < dims.kernel_h; ++kh) {
            for (std::int64_t kw = 0; kw < dims.kernel_w; ++kw) {
              const std::int64_t h = row * dims.stride - dims.padding + kh;
              const std::int64_t w = col * dims.stride - dims.padding + kw;
              if (h < 0 || h >= dims.height || w < 0 || w >= dims.width) {
                continue;
              }
              for (std::int64_t o = 0; o < dims.out; ++o) {
                for (std::int64_t i = 0; i < dims.in; ++i) {
                  body(((image * dims.out_height() + row) * dims.out_width() + col) * dims.out + o,
                       ((image * dims.height + h) * dims.width + w) * dims.in + i,
                       ((o * dims.kernel_h + kh) * dims.kernel_w + kw) * dims.in + i);
                }
              }
            }
          }
        }
      }
    }
  }

  struct Expected {
    std::vector<double> y, dx, dweight, dbias;
  };
  Expected expected(bool accumulate) const {
    const auto zeros = [](std::int64_t count) { return std::vector<double>(static_cast<std::size_t>(count)); };
    Expected result{zeros(y.size()), zeros(x.size()), zeros(weight.size()), zeros(dims.out)};
    if (accumulate) {
      result.dweight = dweight.values();
      result.dbias = dbias.values();
    }
    for_products([&](std::int64_t to, std::int64_t from, std::int64_t by) {
      result.y[static_cast<std::size_t>(to)] += x.at(from) * weight.at(by);
      result.dx[static_cast<std::size_t>(from)] += dy.at(to) * weight.at(by);
      result.dweight[static_cast<std::size_t>(by)] += dy.at(to) * x.at(from);
    });
    for (std::int64_t i = 0; i < y.size(); ++i) {
      double& value = result.y[static_cast<std::size_t>(i)];
      value += dims.bias ? bias.at(i % dims.out) : 0.0;
      value = dims.relu ? std::max(value, 0.0) : value;
      result.dbias[static_cast<std::size_t>(i % dims.out)] += dy.at(i);
    }
    return result;
  }

  void run(bool accumulate) {
    Workspace for_forward(convolution_forward_workspace_bytes(dims));
    convolution_forward(dims, x.data(), weight.data(), dims.bias ? bias.data() : nullptr, y.data(), for_forward.span());
    Workspace for_input(convolution_backward_input_workspace_bytes(dims));
    convolution_backward_input(dims, dy.data(), weight.data(), dx.data(), for_input.span());
    Workspace for_weight(convolution_backward_weight_workspace_bytes(dims, accumulate));
    convolution_backward_weight(dims, dy.data(), x.data(), dweight.data(), dims.bias ? dbias.data() : nullptr,
                                accumulate, for_weight.span());
    EXPECT_TRUE(for_forward.guard_intact() && for_input.guard_intact() && for_weight.guard_intact());
  }
};

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
        Layer layer(dims, random_tensor);
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
    Layer layer(dims, integer_tensor);
    const auto expected = layer.expected(true);
    layer.run(true);
    EXPECT_EQ(layer.y.values(), expected.y);
    EXPECT_EQ(layer.dx.values(), expected.dx);
    EXPECT_EQ(layer.dweight.values(), expected.dweight);
    EXPECT_EQ(layer.dbias.values(), expected.dbias);

    Layer once(dims, random_tensor);
    Layer again(dims, random_tensor);
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
  Layer layer(dims, random_tensor);
  ASSERT_GT(convolution_backward_weight_workspace_bytes(dims, true), 0);
  EXPECT_THROW(
      convolution_backward_weight(dims, layer.dy.data(), layer.x.data(), layer.dweight.data(), nullptr, true, {}),
      InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_convolution
