/// @file
/// Winograd's convolution against double at sizes that fill neither tiles nor vectors: the bound on its error that its
/// header states, and that no other image and no number of threads changes a bit.

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "base/ceil_div.hpp"
#include "exec/cpu/kernels/bf16_unit.hpp"
#include "exec/cpu/kernels/convolution.hpp"
#include "exec/cpu/kernels/winograd.hpp"
#include "exec/cpu/kernels/winograd_choice.hpp"
#include "unit/exec/convolution_layer.hpp"
#include "unit/exec/dense_reference.hpp"

namespace strata::cpu::test_winograd {
namespace {

using test::ConvolutionLayer;
using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::Workspace;

using Doubles = std::vector<double>;

/// By what an error is measured: the largest operand of one side times the sum of the other side's magnitudes. At an
/// image's edge an output has few products, and its tile's others have their share in its error.
struct Magnitudes {
  Doubles of_out, of_in, of_weight;  ///< by output channel, by input channel, by output channel

  explicit Magnitudes(const ConvolutionLayer& layer)
      : of_out(static_cast<std::size_t>(layer.dims.out)),
        of_in(static_cast<std::size_t>(layer.dims.in)),
        of_weight(of_out.size()) {
    const Doubles weight = layer.weight.values(), dy = layer.dy.values();
    const auto largest = [](const Doubles& values) {
      double result = 0.0;
      for (const double value : values) result = std::max(result, std::abs(value));
      return result;
    };
    const double largest_x = largest(layer.x.values()), largest_dy = largest(dy);
    for (std::size_t w = 0; w < weight.size(); ++w) {
      of_out[w / (9 * of_in.size())] += std::abs(weight[w]) * largest_x;
      of_in[w % of_in.size()] += std::abs(weight[w]) * largest_dy;
    }
    for (std::size_t i = 0; i < dy.size(); ++i) of_weight[i % of_out.size()] += std::abs(dy[i]) * largest_x;
  }
};

/// The largest error over magnitude(element), less the rounding to the stored type.
template <typename Magnitude>
double worst(const Tensor& actual, const Doubles& expected, const Magnitude& magnitude) {
  const double rounding = actual.dtype() == DType::bf16 ? 0x1p-8 : 0.0;
  double result = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual.at(static_cast<std::int64_t>(i)) - expected[i]);
    result = std::max(result, (error - rounding * std::abs(expected[i])) / magnitude(i));
  }
  return result;
}

/// All that @p layer has but db, by Winograd's transforms whether they are the faster way here or not.
void run(ConvolutionLayer& layer, bool accumulate) {
  const ConvolutionDims& dims = layer.dims;
  Workspace for_forward(winograd_forward_workspace_bytes(dims));
  winograd_forward(dims, layer.x.data(), layer.weight.data(), dims.bias ? layer.bias.data() : nullptr, layer.y.data(),
                   for_forward.span());
  Workspace for_input(winograd_backward_input_workspace_bytes(dims));
  winograd_backward_input(dims, layer.dy.data(), layer.weight.data(), layer.dx.data(), for_input.span());
  Workspace for_weight(winograd_backward_weight_workspace_bytes(dims));
  winograd_backward_weight(dims, layer.dy.data(), layer.x.data(), layer.dweight.data(), accumulate, for_weight.span());
  EXPECT_TRUE(for_forward.guard_intact() && for_input.guard_intact() && for_weight.guard_intact());
}

/// Of the tensors of a layer, and of its weights' gradients.
struct StoredAs {
  DType dtype, gradient_dtype;
};
constexpr StoredAs all_stored[] = {{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}};

TEST(Winograd, ErrorsStayBelowWhatItsHeaderStates) {
  constexpr double stated = 3e-7, stated_of_few_tiles = 1e-6;
  const auto in_the_norm = [](const Tensor& result) {
    return result.dtype() == DType::f32 ? 2e-6 : test::tolerance(DType::bf16);
  };
  for (ConvolutionDims dims : {
           ConvolutionDims{.images = 2, .height = 16, .width = 16, .in = 32, .out = 32},
           ConvolutionDims{.images = 3, .height = 7, .width = 10, .in = 48, .out = 61},                // no whole tiles
           ConvolutionDims{.images = 1, .height = 13, .width = 9, .in = 83, .out = 30, .padding = 0},  // nor vectors
           ConvolutionDims{.images = 2, .height = 6, .width = 7, .in = 31, .out = 64, .padding = 2},
           ConvolutionDims{.images = 1, .height = 14, .width = 14, .in = 224, .out = 192},
           ConvolutionDims{.images = 1, .height = 4, .width = 4, .in = 224, .out = 192},  // one tile
       }) {
    for (const StoredAs& stored_as : all_stored) {
      for (const bool option : {false, true}) {
        // The same transforms once more, and references take long.
        if (!option && (stored_as.dtype == DType::bf16 || dims.in > 100)) continue;
        SCOPED_TRACE(testing::Message() << dims.in << "->" << dims.out << " " << to_string(stored_as.dtype) << " "
                                        << to_string(stored_as.gradient_dtype) << " padding " << dims.padding
                                        << " bias, relu, accumulate " << option);
        dims.dtype = stored_as.dtype;
        dims.gradient_dtype = stored_as.gradient_dtype;
        dims.bias = dims.relu = option;
        ConvolutionLayer layer(dims, random_tensor);
        const auto expected = layer.expected(option);
        const Magnitudes magnitudes(layer);
        run(layer, option);
        const auto in = static_cast<std::size_t>(dims.in), out = static_cast<std::size_t>(dims.out);
        EXPECT_LT(worst(layer.y, expected.y, [&](std::size_t i) { return magnitudes.of_out[i % out]; }), stated);
        EXPECT_LT(worst(layer.dx, expected.dx, [&](std::size_t i) { return magnitudes.of_in[i % in]; }), stated);
        const std::int64_t tiles = dims.images * ceil_div(dims.out_height(), 4) * ceil_div(dims.out_width(), 4);
        EXPECT_LT(
            worst(layer.dweight, expected.dweight, [&](std::size_t i) { return magnitudes.of_weight[i / (9 * in)]; }),
            tiles == 1 ? stated_of_few_tiles : stated);
        EXPECT_LT(relative_error(layer.y.values(), expected.y), in_the_norm(layer.y));
        EXPECT_LT(relative_error(layer.dx.values(), expected.dx), in_the_norm(layer.dx));
        EXPECT_LT(relative_error(layer.dweight.values(), expected.dweight), in_the_norm(layer.dweight));
      }
    }
  }
}

TEST(Winograd, NoOtherImageAndNoNumberOfThreadsChangesABit) {
  for (const StoredAs& stored_as : all_stored) {
    ConvolutionDims dims{.images = 5,
                         .height = 9,
                         .width = 10,
                         .in = 48,
                         .out = 40,
                         .dtype = stored_as.dtype,
                         .gradient_dtype = stored_as.gradient_dtype};
    const auto in_threads = [&](int threads) {
      const int before = omp_get_max_threads();
      omp_set_num_threads(threads);
      ConvolutionLayer layer(dims, random_tensor);
      run(layer, true);
      omp_set_num_threads(before);
      return layer;
    };
    const ConvolutionLayer one = in_threads(1), three = in_threads(3);
    EXPECT_EQ(one.y.bits(), three.y.bits());
    EXPECT_EQ(one.dx.bits(), three.dx.bits());
    EXPECT_EQ(one.dweight.bits(), three.dweight.bits());
    dims.images = 2;
    const ConvolutionLayer first_images = in_threads(1);
    EXPECT_EQ(one.y.bits().substr(0, first_images.y.bits().size()), first_images.y.bits());
    EXPECT_EQ(one.dx.bits().substr(0, first_images.dx.bits().size()), first_images.dx.bits());
  }
}

TEST(Winograd, ServesWhereItHasFewEnoughProducts) {
  const ConvolutionDims dims{.images = 2, .height = 14, .width = 14, .in = 64, .out = 64};
  EXPECT_TRUE(winograd_serves(dims));
  const auto with = [&](const auto& change) {
    ConvolutionDims changed = dims;
    change(changed);
    return winograd_serves(changed);
  };
  EXPECT_FALSE(with([](ConvolutionDims& d) { d.stride = 2; }));
  EXPECT_FALSE(with([](ConvolutionDims& d) { d.kernel_h = d.kernel_w = 1; }));
  EXPECT_FALSE(with([](ConvolutionDims& d) { d.in = 3; }));
  EXPECT_FALSE(with([](ConvolutionDims& d) { d.height = d.width = 2; }));  // a tile of 16 outputs for four
  EXPECT_TRUE(with([](ConvolutionDims& d) { d.height = d.width = 4; }));
}

TEST(Winograd, OfBf16ServesWhereNoInstructionsMakeDirectSumsFaster) {
  const auto serves = [](std::int64_t images, std::int64_t size) {
    return winograd_serves(
        {.images = images, .height = size, .width = size, .in = 64, .out = 64, .dtype = DType::bf16});
  };
  const Bf16Unit unit = bf16_unit();
  EXPECT_EQ(serves(2, 14), unit == Bf16Unit::none);
  EXPECT_EQ(serves(64, 14), unit == Bf16Unit::none);  // a third of the products: tiles of 16 x 16 for 14 x 14
  EXPECT_EQ(serves(5, 28), unit == Bf16Unit::none);   // 245 tiles
  EXPECT_EQ(serves(6, 28), unit != Bf16Unit::tiles);  // 294
  EXPECT_FALSE(serves(64, 2));
}

TEST(Winograd, IsOffUnlessAskedFor) {
  const ConvolutionDims dims{.images = 2, .height = 8, .width = 8, .in = 32, .out = 32};
  ConvolutionLayer direct(dims, random_tensor);
  ConvolutionDims asked = dims;
  asked.winograd = true;
  ConvolutionLayer by_winograd(asked, random_tensor), transformed(dims, random_tensor);
  direct.run(false);
  by_winograd.run(false);
  run(transformed, false);
  EXPECT_NE(direct.y.bits(), by_winograd.y.bits());
  EXPECT_NE(direct.dx.bits(), by_winograd.dx.bits());
  EXPECT_NE(direct.dweight.bits(), by_winograd.dweight.bits());
  EXPECT_EQ(by_winograd.y.bits(), transformed.y.bits());
  EXPECT_EQ(by_winograd.dx.bits(), transformed.dx.bits());
  EXPECT_EQ(by_winograd.dweight.bits(), transformed.dweight.bits());
}

}  // namespace
}  // namespace strata::cpu::test_winograd
