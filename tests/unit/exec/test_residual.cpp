/// @file
/// The residual sum: exact where the sum is representable, rounded once elsewhere.

#include <gtest/gtest.h>

#include "exec/cpu/kernels/residual.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_residual {
namespace {

TEST(Residual, ExactOnIntegersAndInPlace) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t n : {1, 5, 33, 768, 20011}) {
      test::Tensor a = test::integer_tensor(dtype, n, "a");
      const test::Tensor b = test::integer_tensor(dtype, n, "b");
      test::Tensor y(dtype, n);
      test::expect_same_bits_on_any_threads([&] {
        add(dtype, a.data(), b.data(), y.data(), n);
        return y.bits();
      });
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y.at(i), a.at(i) + b.at(i));
      add(dtype, a.data(), b.data(), a.data(), n);
      EXPECT_EQ(a.bits(), y.bits());
    }
  }
}

TEST(Residual, RoundsOnceToNearestEven) {
  const test::Tensor a = test::random_tensor(DType::bf16, 4099, "a");
  const test::Tensor b = test::random_tensor(DType::bf16, 4099, "b");
  test::Tensor y(DType::bf16, 4099);
  add(DType::bf16, a.data(), b.data(), y.data(), 4099);
  for (std::int64_t i = 0; i < 4099; ++i) {
    ASSERT_EQ(y.at(i), static_cast<double>(static_cast<float>(bf16(static_cast<float>(a.at(i) + b.at(i))))));
  }
}

}  // namespace
}  // namespace strata::cpu::test_residual
