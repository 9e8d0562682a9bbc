/// @file
/// RMS norm and its gradients against double, at widths that are no multiple of a vector, and its independence of
/// threads.

#include <gtest/gtest.h>

#include "exec/cpu/kernels/rms_norm.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_rms_norm {
namespace {

using test::random_tensor;
using test::Tensor;
using test::Workspace;

class RmsNorm : public ::testing::TestWithParam<std::tuple<std::int64_t, std::int64_t, DType, DType>> {
 protected:
  RmsNormDims dims{.rows = std::get<0>(GetParam()),
                   .width = std::get<1>(GetParam()),
                   .dtype = std::get<2>(GetParam()),
                   .gradient_dtype = std::get<3>(GetParam()),
                   .epsilon = 1e-6F};
  std::int64_t n = dims.rows * dims.width;
  Tensor x = random_tensor(dims.dtype, n, "x");
  Tensor dy = random_tensor(dims.dtype, n, "dy");
  Tensor weight = random_tensor(dims.dtype, dims.width, "weight");
  Tensor y{dims.dtype, n};
  Tensor dx{dims.dtype, n};
  Tensor dweight{dims.gradient_dtype, dims.width};
  Tensor statistics{DType::f32, dims.rows};
  Workspace workspace{rms_norm_backward_workspace_bytes(dims)};
  std::vector<double> expected_y = std::vector<double>(static_cast<std::size_t>(n));
  std::vector<double> expected_dx = std::vector<double>(static_cast<std::size_t>(n));
  std::vector<double> expected_dweight = std::vector<double>(static_cast<std::size_t>(dims.width));

  void SetUp() override {
    for (std::int64_t row = 0; row < dims.rows; ++row) {
      const std::int64_t first = row * dims.width;
      double squares = 0.0;
      for (std::int64_t i = 0; i < dims.width; ++i) squares += x.at(first + i) * x.at(first + i);
      const double r = 1.0 / std::sqrt(squares / static_cast<double>(dims.width) + static_cast<double>(dims.epsilon));
      double mean_gx = 0.0;
      for (std::int64_t i = 0; i < dims.width; ++i) {
        expected_y[static_cast<std::size_t>(first + i)] = x.at(first + i) * r * weight.at(i);
        expected_dweight[static_cast<std::size_t>(i)] += dy.at(first + i) * x.at(first + i) * r;
        mean_gx += dy.at(first + i) * weight.at(i) * x.at(first + i) * r / static_cast<double>(dims.width);
      }
      for (std::int64_t i = 0; i < dims.width; ++i) {
        expected_dx[static_cast<std::size_t>(first + i)] =
            r * (dy.at(first + i) * weight.at(i) - x.at(first + i) * r * mean_gx);
      }
    }
    rms_norm_forward(dims, x.data(), weight.data(), y.data(), static_cast<float*>(statistics.data()));
  }
  void backward(Tensor& to, const RmsNormAccumulate& accumulate) {
    rms_norm_backward(dims,
                      {.dy = dy.data(),
                       .x = x.data(),
                       .weight = weight.data(),
                       .statistics = static_cast<const float*>(statistics.data()),
                       .dx = to.data(),
                       .dweight = dweight.data()},
                      accumulate, workspace.span());
  }
  double slack() const { return 4e-6 * std::sqrt(static_cast<double>(dims.rows)); }
};

TEST_P(RmsNorm, AgreesWithDouble) {
  test::expect_elements(y, expected_y, 2e-6, 1e-6);
  backward(dx, {});
  test::expect_elements(dx, expected_dx, 1e-5, 1e-5);
  test::expect_elements(dweight, expected_dweight, 1e-5, slack());
  EXPECT_TRUE(workspace.guard_intact());
}

TEST_P(RmsNorm, EachOutputAccumulatesOnItsOwn) {
  dx = random_tensor(dims.dtype, n, "old dx");
  auto sum = expected_dx;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += dx.at(static_cast<std::int64_t>(i));
  dweight = random_tensor(dims.gradient_dtype, dims.width, "old dweight");
  backward(dx, {.dx = true});
  test::expect_elements(dx, sum, 1e-5, 1e-5);
  test::expect_elements(dweight, expected_dweight, 1e-5, slack());

  dweight = random_tensor(dims.gradient_dtype, dims.width, "old dweight");
  sum = expected_dweight;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += dweight.at(static_cast<std::int64_t>(i));
  backward(dx, {.dweight = true});
  test::expect_elements(dx, expected_dx, 1e-5, 1e-5);
  test::expect_elements(dweight, sum, 1e-5, slack());
}

TEST_P(RmsNorm, InPlaceAndAnyThreadsGiveTheSameBits) {
  test::expect_same_bits_on_any_threads([&] {
    rms_norm_forward(dims, x.data(), weight.data(), y.data(), static_cast<float*>(statistics.data()));
    backward(dx, {});
    return y.bits() + statistics.bits() + dx.bits() + dweight.bits();
  });
  backward(dy, {});
  EXPECT_EQ(dx.bits(), dy.bits());
  rms_norm_forward(dims, x.data(), weight.data(), x.data(), static_cast<float*>(statistics.data()));
  EXPECT_EQ(x.bits(), y.bits());
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Combine(::testing::Values<std::int64_t>(1, 3, 17, 150),
                                            ::testing::Values<std::int64_t>(5, 33, 768),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(DType::f32, DType::bf16)));

}  // namespace
}  // namespace strata::cpu::test_rms_norm
