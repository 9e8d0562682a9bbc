/// @file
/// Fill, copy, cast, scale, accumulate and the sums: exact where the result is, rounded once elsewhere.

#include <gtest/gtest.h>

#include <limits>

#include "exec/cpu/kernels/elementwise.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_elementwise {
namespace {

using test::random_tensor;
using test::Tensor;

constexpr std::int64_t sizes[] = {1, 15, 33, 4097, 20011};

TEST(Elementwise, CastRoundsToNearestEvenAndWidensExactly) {
  for (const std::int64_t n : sizes) {
    const Tensor x = random_tensor(DType::f32, n, "x");
    Tensor narrow(DType::bf16, n);
    Tensor wide(DType::f32, n);
    cast(DType::f32, x.data(), DType::bf16, narrow.data(), n);
    cast(DType::bf16, narrow.data(), DType::f32, wide.data(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(narrow.at(i), static_cast<double>(static_cast<float>(bf16(static_cast<float>(x.at(i))))));
      ASSERT_EQ(wide.at(i), narrow.at(i));
    }
  }
}

TEST(Elementwise, FillCopyScaleAccumulateAreExactOnIntegers) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t n : sizes) {
      const Tensor x = test::integer_tensor(dtype, n, "x");
      Tensor y(dtype, n);
      fill(dtype, y.data(), n, 3.0F);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y.at(i), 3.0);
      accumulate(dtype, x.data(), dtype, y.data(), n);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y.at(i), 3.0 + x.at(i));
      copy(dtype, x.data(), y.data(), n);
      EXPECT_EQ(y.bits(), x.bits());
      scale(dtype, y.data(), n, -0.5F);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y.at(i), -0.5 * x.at(i));
    }
  }
}

TEST(Elementwise, AccumulateAcrossTypes) {
  const Tensor x = test::integer_tensor(DType::bf16, 77, "x");
  Tensor y = test::integer_tensor(DType::f32, 77, "y");
  const std::vector<double> before = y.values();
  accumulate(DType::bf16, x.data(), DType::f32, y.data(), 77);
  for (std::int64_t i = 0; i < 77; ++i) ASSERT_EQ(y.at(i), before[static_cast<std::size_t>(i)] + x.at(i));
}

TEST(Elementwise, SumsAgainstDoubleAndOnAnyThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t n : sizes) {
      const Tensor x = random_tensor(dtype, n, "x");
      double squares = 0.0;
      for (std::int64_t i = 0; i < n; ++i) squares += x.at(i) * x.at(i);
      test::expect_same_bits_on_any_threads([&] {
        float result = -1.0F;
        sum_of_squares(dtype, x.data(), n, &result, false);
        EXPECT_NEAR(result, squares, 1e-5 * squares);
        sum_of_squares(dtype, x.data(), n, &result, true);
        EXPECT_NEAR(result, 2.0 * squares, 2e-5 * squares);
        return std::bit_cast<std::uint32_t>(result);
      });
    }
  }
  const Tensor ones = [] {
    Tensor tensor(DType::f32, 300);
    for (int i = 0; i < 300; ++i) tensor.set(i, 1.0);
    return tensor;
  }();
  float total = 0.5F;
  sum(static_cast<const float*>(ones.data()), 300, 0.25F, &total, true);
  EXPECT_EQ(total, 75.5F);
}

TEST(Elementwise, ClipFactor) {
  float factor = 0.0F;
  float norm = 0.0F;
  clip_factor(16.0F, 1.0F, &factor, &norm);
  EXPECT_EQ(norm, 4.0F);
  EXPECT_NEAR(factor, 0.25, 1e-6);
  clip_factor(0.25F, 1.0F, &factor, &norm);
  EXPECT_EQ(factor, 1.0F);
  clip_factor(std::numeric_limits<float>::quiet_NaN(), 1.0F, &factor, &norm);
  EXPECT_TRUE(std::isnan(factor)) << "a broken gradient must show";
}

}  // namespace
}  // namespace strata::cpu::test_elementwise
