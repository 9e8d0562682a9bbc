/// @file
/// Layer norm and its gradients against double, at widths that are no multiple of a vector, and its independence of
/// threads.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/layer_norm.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_layer_norm {
namespace {

using test::random_tensor;
using test::relative_error;
using test::Tensor;
using test::Workspace;

struct Reference {
  std::vector<double> y, dx, dweight, dbias, mean, rstd;

  Reference(const LayerNormDims& dims, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy)
      : y(static_cast<std::size_t>(dims.rows * dims.width)),
        dx(y.size()),
        dweight(static_cast<std::size_t>(dims.width)),
        dbias(dweight.size()) {
    const auto width = static_cast<double>(dims.width);
    for (std::int64_t row = 0; row < dims.rows; ++row) {
      const std::int64_t first = row * dims.width;
      double sum = 0.0;
      double squares = 0.0;
      for (std::int64_t i = 0; i < dims.width; ++i) sum += x.at(first + i);
      const double m = sum / width;
      for (std::int64_t i = 0; i < dims.width; ++i) squares += (x.at(first + i) - m) * (x.at(first + i) - m);
      const double r = 1.0 / std::sqrt(squares / width + static_cast<double>(dims.epsilon));
      mean.push_back(m);
      rstd.push_back(r);
      double mean_g = 0.0;
      double mean_gx = 0.0;
      for (std::int64_t i = 0; i < dims.width; ++i) {
        const double normalised = (x.at(first + i) - m) * r;
        const double g = dy.at(first + i) * weight.at(i);
        y[static_cast<std::size_t>(first + i)] = normalised * weight.at(i) + bias.at(i);
        dweight[static_cast<std::size_t>(i)] += dy.at(first + i) * normalised;
        dbias[static_cast<std::size_t>(i)] += dy.at(first + i);
        mean_g += g / width;
        mean_gx += g * normalised / width;
      }
      for (std::int64_t i = 0; i < dims.width; ++i) {
        const double normalised = (x.at(first + i) - m) * r;
        dx[static_cast<std::size_t>(first + i)] = r * (dy.at(first + i) * weight.at(i) - mean_g - normalised * mean_gx);
      }
    }
  }
};

class LayerNorm : public ::testing::TestWithParam<std::tuple<std::int64_t, std::int64_t, DType, DType>> {
 protected:
  LayerNormDims dims{.rows = std::get<0>(GetParam()),
                     .width = std::get<1>(GetParam()),
                     .dtype = std::get<2>(GetParam()),
                     .gradient_dtype = std::get<3>(GetParam()),
                     .epsilon = 1e-5F};
  std::int64_t n = dims.rows * dims.width;
  Tensor x = random_tensor(dims.dtype, n, "x");
  Tensor dy = random_tensor(dims.dtype, n, "dy");
  Tensor weight = random_tensor(dims.dtype, dims.width, "weight");
  Tensor bias = random_tensor(dims.dtype, dims.width, "bias");
  Tensor y{dims.dtype, n};
  Tensor statistics{DType::f32, 2 * dims.rows};
  Workspace workspace{layer_norm_backward_workspace_bytes(dims)};

  void forward() {
    layer_norm_forward(dims, x.data(), weight.data(), bias.data(), y.data(), static_cast<float*>(statistics.data()));
  }
  void backward(Tensor& dx, Tensor& dweight, Tensor& dbias, const LayerNormAccumulate& accumulate) {
    layer_norm_backward(dims,
                        {.dy = dy.data(),
                         .x = x.data(),
                         .weight = weight.data(),
                         .statistics = static_cast<const float*>(statistics.data()),
                         .dx = dx.data(),
                         .dweight = dweight.data(),
                         .dbias = dbias.data()},
                        accumulate, workspace.span());
  }
};

TEST_P(LayerNorm, AgreesWithDouble) {
  const Reference reference(dims, x, weight, bias, dy);
  forward();
  test::expect_elements(y, reference.y, 2e-6, 4e-6);
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    EXPECT_NEAR(statistics.at(2 * row), reference.mean[static_cast<std::size_t>(row)], 1e-6);
    EXPECT_NEAR(statistics.at(2 * row + 1) / reference.rstd[static_cast<std::size_t>(row)], 1.0, 1e-6);
  }
  Tensor dx(dims.dtype, n);
  Tensor dweight(dims.gradient_dtype, dims.width);
  Tensor dbias(dims.gradient_dtype, dims.width);
  backward(dx, dweight, dbias, {});
  test::expect_elements(dx, reference.dx, 1e-5, 1e-5);
  test::expect_elements(dweight, reference.dweight, 1e-5, 4e-6 * std::sqrt(static_cast<double>(dims.rows)));
  test::expect_elements(dbias, reference.dbias, 1e-5, 4e-6 * std::sqrt(static_cast<double>(dims.rows)));
  EXPECT_TRUE(workspace.guard_intact());
}

TEST_P(LayerNorm, EachOutputAccumulatesOnItsOwn) {
  forward();
  const Reference reference(dims, x, weight, bias, dy);
  for (int which = 0; which < 3; ++which) {
    Tensor dx = random_tensor(dims.dtype, n, "old dx");
    Tensor dweight = random_tensor(dims.gradient_dtype, dims.width, "old dweight");
    Tensor dbias = random_tensor(dims.gradient_dtype, dims.width, "old dbias");
    auto expected_dx = reference.dx;
    auto expected_dweight = reference.dweight;
    auto expected_dbias = reference.dbias;
    auto& added = which == 0 ? expected_dx : which == 1 ? expected_dweight : expected_dbias;
    const Tensor& old = which == 0 ? dx : which == 1 ? dweight : dbias;
    for (std::size_t i = 0; i < added.size(); ++i) added[i] += old.at(static_cast<std::int64_t>(i));
    backward(dx, dweight, dbias, {which == 0, which == 1, which == 2});
    const double slack = 4e-6 * std::sqrt(static_cast<double>(dims.rows));
    test::expect_elements(dx, expected_dx, 1e-5, 1e-5);
    test::expect_elements(dweight, expected_dweight, 1e-5, slack);
    test::expect_elements(dbias, expected_dbias, 1e-5, slack);
  }
}

TEST_P(LayerNorm, InPlaceAndAnyThreadsGiveTheSameBits) {
  test::expect_same_bits_on_any_threads([&] {
    forward();
    Tensor dx(dims.dtype, n);
    Tensor dweight(dims.gradient_dtype, dims.width);
    Tensor dbias(dims.gradient_dtype, dims.width);
    backward(dx, dweight, dbias, {});
    return y.bits() + statistics.bits() + dx.bits() + dweight.bits() + dbias.bits();
  });
  Tensor dx(dims.dtype, n);
  Tensor dweight(dims.gradient_dtype, dims.width);
  Tensor dbias(dims.gradient_dtype, dims.width);
  backward(dx, dweight, dbias, {});
  backward(dy, dweight, dbias, {});
  EXPECT_EQ(dx.bits(), dy.bits());
  layer_norm_forward(dims, x.data(), weight.data(), bias.data(), x.data(), static_cast<float*>(statistics.data()));
  EXPECT_EQ(x.bits(), y.bits());
}

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNorm,
                         ::testing::Combine(::testing::Values<std::int64_t>(1, 3, 17, 150),
                                            ::testing::Values<std::int64_t>(5, 33, 768),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(DType::f32, DType::bf16)));

TEST(LayerNormMean, FarFromZeroKeepsTheVariance) {
  // Two passes: Σx² - (Σx)² would lose every digit here.
  const LayerNormDims dims{.rows = 1, .width = 64, .epsilon = 0.0F};
  Tensor x(DType::f32, 64);
  Tensor one(DType::f32, 64);
  Tensor y(DType::f32, 64);
  Tensor statistics(DType::f32, 2);
  for (std::int64_t i = 0; i < 64; ++i) {
    x.set(i, 65536.0 + (i % 2 == 0 ? 1.0 : -1.0));
    one.set(i, 1.0);
  }
  layer_norm_forward(dims, x.data(), one.data(), one.data(), y.data(), static_cast<float*>(statistics.data()));
  EXPECT_EQ(statistics.at(0), 65536.0);
  EXPECT_EQ(statistics.at(1), 1.0);
  EXPECT_EQ(y.at(0), 2.0);
  EXPECT_EQ(y.at(1), 0.0);
}

TEST(LayerNormWorkspace, TooSmallIsRefused) {
  const LayerNormDims dims{.rows = 2, .width = 16};
  Tensor t = random_tensor(DType::f32, 32, "t");
  Workspace workspace(layer_norm_backward_workspace_bytes(dims));
  const LayerNormBackwardOperands operands{.dy = t.data(),
                                           .x = t.data(),
                                           .weight = t.data(),
                                           .statistics = static_cast<const float*>(t.data()),
                                           .dx = t.data(),
                                           .dweight = t.data(),
                                           .dbias = t.data()};
  EXPECT_THROW(layer_norm_backward(dims, operands, {}, workspace.span().first(workspace.span().size() - 1)),
               InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_layer_norm
