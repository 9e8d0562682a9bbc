/// @file
/// Activations against double over the range where they bend, element by element; with them the exponential, the
/// reciprocal and the error function of vector_math.hpp as the kernels are compiled.

#include <gtest/gtest.h>

#include <limits>
#include <numbers>

#include "exec/cpu/kernels/activation.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_activation {
namespace {

using test::integer_tensor;
using test::random_tensor;
using test::Tensor;

using Forward = void (*)(DType, const void*, void*, std::int64_t);
using Backward = void (*)(DType, const void*, const void*, void*, std::int64_t);

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double gelu_argument(double x) { return 2.0 * std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

struct Function {
  const char* name;
  Forward forward;
  Backward backward;
  double (*value)(double);
  double (*slope)(double);
};

const Function functions[] = {
    {"gelu", gelu_forward, gelu_backward, [](double x) { return x * logistic(gelu_argument(x)); },
     [](double x) {
       const double s = logistic(gelu_argument(x));
       const double u = 2.0 * std::sqrt(2.0 / std::numbers::pi) * (1.0 + 3.0 * 0.044715 * x * x);
       return s + x * s * logistic(-gelu_argument(x)) * u;
     }},
    {"gelu_erf", gelu_erf_forward, gelu_erf_backward, [](double x) { return x * normal_cdf(x); },
     [](double x) { return normal_cdf(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi); }},
    {"silu", silu_forward, silu_backward, [](double x) { return x * logistic(x); },
     [](double x) { return logistic(x) + x * logistic(x) * logistic(-x); }},
};

class SmoothActivation : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  const Function& function = functions[std::get<0>(GetParam())];
  DType dtype = std::get<1>(GetParam());

  /// 4,097 values over [-9, 9]: a full chunk and one element more.
  Tensor grid() const {
    Tensor x(dtype, 4097);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, (static_cast<double>(i) - 2048.0) * (9.0 / 2048.0));
    return x;
  }
};

TEST_P(SmoothActivation, ForwardKeepsRelativeAccuracyOnBothSides) {
  const Tensor x = grid();
  Tensor y(dtype, x.size());
  function.forward(dtype, x.data(), y.data(), x.size());
  std::vector<double> expected;
  for (const double value : x.values()) expected.push_back(function.value(value));
  // The exponent is up to 70, so that its own rounding is worth 70·2⁻²³; the tail at -9 is 1e-18 for gelu.
  test::expect_elements(y, expected, 2e-5, 1e-37);
  std::vector<double> positive;
  Tensor of_positive(dtype, 2048);
  for (std::int64_t i = 0; i < 2048; ++i) {
    positive.push_back(expected[static_cast<std::size_t>(2049 + i)]);
    of_positive.set(i, y.at(2049 + i));
  }
  test::expect_elements(of_positive, positive, 3e-7, 1e-37);
}

TEST_P(SmoothActivation, BackwardAgreesWithDouble) {
  const Tensor x = grid();
  const Tensor dy = random_tensor(dtype, x.size(), "dy");
  Tensor dx(dtype, x.size());
  function.backward(dtype, dy.data(), x.data(), dx.data(), x.size());
  std::vector<double> expected;
  for (std::int64_t i = 0; i < x.size(); ++i) expected.push_back(dy.at(i) * function.slope(x.at(i)));
  test::expect_elements(dx, expected, 1e-6, 1e-6);
}

TEST_P(SmoothActivation, OddSizesInPlaceAndThreads) {
  for (const std::int64_t n : {1, 5, 16, 33, 30001}) {
    const Tensor x = random_tensor(dtype, n, "x");
    const Tensor dy = random_tensor(dtype, n, "dy");
    test::expect_same_bits_on_any_threads([&] {
      Tensor y(dtype, n);
      Tensor dx(dtype, n);
      function.forward(dtype, x.data(), y.data(), n);
      function.backward(dtype, dy.data(), x.data(), dx.data(), n);
      return y.bits() + dx.bits();
    });
    Tensor y(dtype, n);
    Tensor dx(dtype, n);
    function.forward(dtype, x.data(), y.data(), n);
    function.backward(dtype, dy.data(), x.data(), dx.data(), n);
    Tensor forward_in_place = random_tensor(dtype, n, "x");
    Tensor backward_in_place = random_tensor(dtype, n, "dy");
    function.forward(dtype, forward_in_place.data(), forward_in_place.data(), n);
    function.backward(dtype, backward_in_place.data(), x.data(), backward_in_place.data(), n);
    EXPECT_EQ(forward_in_place.bits(), y.bits());
    EXPECT_EQ(backward_in_place.bits(), dx.bits());
  }
}

TEST_P(SmoothActivation, ExtremesAreFiniteAndNaNIsNaN) {
  Tensor x(dtype, 6);
  const double values[] = {-1e30, -200.0, -0.0, 200.0, 1e30, std::numeric_limits<double>::quiet_NaN()};
  for (int i = 0; i < 6; ++i) x.set(i, values[i]);
  Tensor y(dtype, 6);
  function.forward(dtype, x.data(), y.data(), 6);
  EXPECT_NEAR(y.at(0), 0.0, 1e-7);
  EXPECT_NEAR(y.at(1), 0.0, 1e-35);
  EXPECT_EQ(y.at(2), 0.0);
  EXPECT_EQ(y.at(3), x.at(3));
  EXPECT_EQ(y.at(4), x.at(4));
  EXPECT_TRUE(std::isnan(y.at(5)));
}

INSTANTIATE_TEST_SUITE_P(All, SmoothActivation,
                         ::testing::Combine(::testing::Values(0, 1, 2), ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return std::string(functions[std::get<0>(test.param)].name) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

TEST(Relu, IsExact) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t n : {1, 5, 33, 9001}) {
      const Tensor x = integer_tensor(dtype, n, "x");
      const Tensor dy = integer_tensor(dtype, n, "dy");
      Tensor y(dtype, n);
      Tensor dx(dtype, n);
      relu_forward(dtype, x.data(), y.data(), n);
      relu_backward(dtype, dy.data(), y.data(), dx.data(), n);
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(y.at(i), std::max(x.at(i), 0.0));
        ASSERT_EQ(dx.at(i), x.at(i) > 0.0 ? dy.at(i) : 0.0);
      }
    }
  }
}

TEST(Relu, ShowsNaN) {
  Tensor x(DType::f32, 1);
  x.set(0, std::numeric_limits<double>::quiet_NaN());
  relu_forward(DType::f32, x.data(), x.data(), 1);
  EXPECT_TRUE(std::isnan(x.at(0)));
}

TEST(Swiglu, AgreesWithDouble) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t rows : {1, 3, 17}) {
      for (const std::int64_t width : {1, 5, 33, 768}) {
        Tensor x = random_tensor(dtype, 2 * rows * width, "x");
        const Tensor dy = random_tensor(dtype, rows * width, "dy");
        std::vector<double> expected_y;
        std::vector<double> expected_dx(static_cast<std::size_t>(2 * rows * width));
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t i = 0; i < width; ++i) {
            const std::int64_t at_gate = 2 * row * width + i;
            const double gate = x.at(at_gate);
            const double up = x.at(at_gate + width);
            const double d = dy.at(row * width + i);
            expected_y.push_back(gate * logistic(gate) * up);
            expected_dx[static_cast<std::size_t>(at_gate)] =
                d * up * (logistic(gate) + gate * logistic(gate) * logistic(-gate));
            expected_dx[static_cast<std::size_t>(at_gate + width)] = d * gate * logistic(gate);
          }
        }
        Tensor y(dtype, rows * width);
        Tensor dx(dtype, 2 * rows * width);
        test::expect_same_bits_on_any_threads([&] {
          swiglu_forward(dtype, x.data(), y.data(), rows, width);
          swiglu_backward(dtype, dy.data(), x.data(), dx.data(), rows, width);
          return y.bits() + dx.bits();
        });
        test::expect_elements(y, expected_y, 5e-7, 1e-37);
        test::expect_elements(dx, expected_dx, 5e-7, 1e-7);
        swiglu_backward(dtype, dy.data(), x.data(), x.data(), rows, width);
        EXPECT_EQ(x.bits(), dx.bits());
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu::test_activation
