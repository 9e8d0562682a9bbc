/// @file
/// SGD and Adam over several steps against double.

#include <gtest/gtest.h>

#include "exec/cpu/kernels/optimizer.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_optimizer {
namespace {

using test::random_tensor;
using test::Tensor;

constexpr std::int64_t n = 1003;

Tensor zeros() {
  Tensor tensor(DType::f32, n);
  for (std::int64_t i = 0; i < n; ++i) tensor.set(i, 0.0);
  return tensor;
}
float* floats(Tensor& tensor) { return static_cast<float*>(tensor.data()); }

class Optimizer : public ::testing::TestWithParam<DType> {
 protected:
  Tensor master = random_tensor(DType::f32, n, "master");
  Tensor compute{DType::bf16, n};
  Tensor first = zeros();
  Tensor second = zeros();
  std::vector<double> w = master.values();
  std::vector<double> m = std::vector<double>(n);
  std::vector<double> v = std::vector<double>(n);
  float factor = 0.5F;

  ParameterSlice slice(const Tensor& gradient) {
    return {.n = n,
            .master = floats(master),
            .gradient = gradient.data(),
            .gradient_dtype = GetParam(),
            .gradient_factor = &factor,
            .compute = static_cast<bf16*>(compute.data())};
  }
  void expect_weights() {
    test::expect_elements(master, w, 2e-6, 2e-6);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(compute.at(i), static_cast<double>(static_cast<float>(bf16(static_cast<float>(master.at(i))))));
    }
  }
};

TEST_P(Optimizer, SgdWithMomentumAndDecay) {
  for (const bool nesterov : {false, true}) {
    const SgdOptions options{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = nesterov};
    for (int step = 0; step < 5; ++step) {
      const Tensor gradient = random_tensor(GetParam(), n, ("gradient" + std::to_string(step)).c_str());
      sgd_update(options, slice(gradient), floats(first));
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        const double g = 0.5 * gradient.at(static_cast<std::int64_t>(i)) + 0.01 * w[i];
        m[i] = 0.9 * m[i] + g;
        w[i] -= 0.1 * (nesterov ? g + 0.9 * m[i] : m[i]);
      }
    }
    expect_weights();
  }
}

TEST_P(Optimizer, SgdIsExactOnDyadicNumbers) {
  Tensor weights = test::integer_tensor(DType::f32, n, "w");
  const Tensor gradient = test::integer_tensor(GetParam(), n, "g");
  const std::vector<double> before = weights.values();
  sgd_update({.learning_rate = 0.25},
             {.n = n, .master = floats(weights), .gradient = gradient.data(), .gradient_dtype = GetParam()}, nullptr);
  for (std::int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(weights.at(i), before[static_cast<std::size_t>(i)] - 0.25 * gradient.at(i));
  }
}

TEST_P(Optimizer, AdamAndAdamW) {
  for (const bool decoupled : {true, false}) {
    AdamOptions options{
        .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .decoupled = decoupled};
    first = zeros();
    second = zeros();
    m.assign(n, 0.0);
    v.assign(n, 0.0);
    for (int step = 1; step <= 6; ++step) {
      options.step = step;
      const Tensor gradient = random_tensor(GetParam(), n, ("gradient" + std::to_string(step)).c_str());
      adam_update(options, slice(gradient), floats(first), floats(second));
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        double g = 0.5 * gradient.at(static_cast<std::int64_t>(i));
        if (decoupled) {
          w[i] *= 1.0 - 0.01 * 0.1;
        } else {
          g += 0.1 * w[i];
        }
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        const double correction = std::sqrt(v[i]) / std::sqrt(1.0 - std::pow(0.95, step)) + 1e-8;
        w[i] -= 0.01 / (1.0 - std::pow(0.9, step)) * m[i] / correction;
      }
    }
    expect_weights();
  }
}

TEST_P(Optimizer, ThreadsChangeNothing) {
  const Tensor gradient = random_tensor(GetParam(), 50021, "gradient");
  test::expect_same_bits_on_any_threads([&] {
    Tensor weights = random_tensor(DType::f32, 50021, "w");
    Tensor a = random_tensor(DType::f32, 50021, "zero");
    Tensor b = random_tensor(DType::f32, 50021, "zero");
    for (std::int64_t i = 0; i < 50021; ++i) {
      a.set(i, 0.0);
      b.set(i, 0.0);
    }
    adam_update({.learning_rate = 0.01},
                {.n = 50021, .master = floats(weights), .gradient = gradient.data(), .gradient_dtype = GetParam()},
                floats(a), floats(b));
    return weights.bits() + a.bits() + b.bits();
  });
}

INSTANTIATE_TEST_SUITE_P(GradientTypes, Optimizer, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::cpu::test_optimizer
