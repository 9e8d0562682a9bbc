/// @file
/// Cross-entropy and its gradient against double, at class counts that are no multiple of a vector.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/cpu/kernels/cross_entropy.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_cross_entropy {
namespace {

using test::random_tensor;
using test::Tensor;

struct Expected {
  std::vector<double> loss;
  std::vector<double> gradient;
};

Expected reference(const CrossEntropyDims& dims, const Tensor& logits, const std::vector<std::int32_t>& targets,
                   double scale) {
  Expected expected;
  for (std::int64_t r = 0; r < dims.rows; ++r) {
    double largest = -1e300;
    for (std::int64_t c = 0; c < dims.classes; ++c) largest = std::max(largest, logits.at(r * dims.classes + c));
    double sum = 0.0;
    for (std::int64_t c = 0; c < dims.classes; ++c) sum += std::exp(logits.at(r * dims.classes + c) - largest);
    const std::int32_t target = targets[static_cast<std::size_t>(r)];
    const bool counts = target != ignored_target;
    expected.loss.push_back(counts ? largest + std::log(sum) - logits.at(r * dims.classes + target) : 0.0);
    for (std::int64_t c = 0; c < dims.classes; ++c) {
      const double p = std::exp(logits.at(r * dims.classes + c) - largest) / sum;
      expected.gradient.push_back(counts ? scale * (p - (c == target ? 1.0 : 0.0)) : 0.0);
    }
  }
  return expected;
}

TEST(CrossEntropy, LossAndGradientAgainstDouble) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t classes : {2, 7, 33, 1000, 50257}) {
      const CrossEntropyDims dims{.rows = 5, .classes = classes, .dtype = dtype};
      Tensor logits = random_tensor(dtype, dims.rows * classes, "logits");
      for (std::int64_t i = 0; i < logits.size(); ++i) logits.set(i, 6.0 * logits.at(i));
      std::vector<std::int32_t> targets;
      for (std::int64_t r = 0; r < dims.rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 31 % classes));
      targets[3] = ignored_target;
      const Expected expected = reference(dims, logits, targets, 0.125);
      Tensor loss(DType::f32, dims.rows);
      cross_entropy_forward(dims, logits.data(), targets.data(), static_cast<float*>(loss.data()));
      test::expect_elements(loss, expected.loss, 2e-6, 2e-6);
      const std::string forward_loss = loss.bits();
      cross_entropy_gradient(dims, logits.data(), targets.data(), 0.125F, static_cast<float*>(loss.data()));
      EXPECT_EQ(loss.bits(), forward_loss);
      test::expect_elements(logits, expected.gradient, 4e-6, 1e-8);
    }
  }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const CrossEntropyDims dims{.rows = 1, .classes = 3};
  Tensor logits(DType::f32, 3);
  logits.set(0, 1e4);
  logits.set(1, -1e4);
  logits.set(2, 1e4);
  const std::int32_t target = 1;
  float loss = 0.0F;
  cross_entropy_gradient(dims, logits.data(), &target, 1.0F, &loss);
  EXPECT_FLOAT_EQ(loss, 2e4F + std::log(2.0F));
  EXPECT_FLOAT_EQ(static_cast<float>(logits.at(0)), 0.5F);
  EXPECT_FLOAT_EQ(static_cast<float>(logits.at(1)), -1.0F);
}

TEST(CrossEntropy, UniformLogitsAreExactAndThreadsChangeNothing) {
  const CrossEntropyDims dims{.rows = 37, .classes = 16};
  const std::vector<std::int32_t> targets(37, 5);
  Tensor logits(DType::f32, 37 * 16);
  test::expect_same_bits_on_any_threads([&] {
    for (std::int64_t i = 0; i < logits.size(); ++i) logits.set(i, 0.75);
    Tensor loss(DType::f32, 37);
    cross_entropy_gradient(dims, logits.data(), targets.data(), 0.5F, static_cast<float*>(loss.data()));
    return logits.bits() + loss.bits();
  });
  EXPECT_EQ(logits.at(0), 1.0 / 32);
  EXPECT_EQ(logits.at(5), 1.0 / 32 - 0.5);
}

TEST(CrossEntropy, ATargetOutsideOfTheClassesIsNamed) {
  Tensor logits(DType::f32, 4);
  for (int i = 0; i < 4; ++i) logits.set(i, 0.0);
  const std::int32_t target = 4;
  float loss = 0.0F;
  EXPECT_THROW(cross_entropy_forward({.rows = 1, .classes = 4}, logits.data(), &target, &loss), InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_cross_entropy
