/// @file
/// Initial values by global index: bit for bit those of RandomStream, however a tensor is cut.

#include <gtest/gtest.h>

#include "base/random.hpp"
#include "exec/cpu/kernels/initialize.hpp"
#include "unit/exec/elements.hpp"

namespace strata::cpu::test_initialize {
namespace {

using test::Tensor;

constexpr RandomStream stream{.seed = 3, .stream = 99};

TEST(Initialize, NormalEqualsTheStreamBitForBit) {
  for (const std::uint64_t first : {0ULL, 1ULL, 5ULL, (1ULL << 33) + 7}) {
    for (const std::int64_t n : {1, 17, 1003}) {
      Tensor y(DType::f32, n);
      initialize_normal({.y = y.data(), .n = n, .random = stream, .first_element = first}, 0.25F, 2.0F);
      for (std::int64_t i = 0; i < n; ++i) {
        const float expected = std::fma(2.0F, stream.normal(first + static_cast<std::uint64_t>(i)), 0.25F);
        ASSERT_EQ(static_cast<float>(y.at(i)), expected) << first << " + " << i;
      }
    }
  }
}

TEST(Initialize, AnyCutGivesTheSameBits) {
  constexpr std::int64_t n = 10007;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor whole(dtype, n);
    test::expect_same_bits_on_any_threads([&] {
      initialize_normal({.dtype = dtype, .y = whole.data(), .n = n, .random = stream}, 0.0F, 0.02F);
      return whole.bits();
    });
    std::string pieces;
    for (std::int64_t begin = 0; begin < n; begin += 1237) {
      Tensor piece(dtype, std::min<std::int64_t>(1237, n - begin));
      initialize_normal({.dtype = dtype,
                         .y = piece.data(),
                         .n = piece.size(),
                         .random = stream,
                         .first_element = static_cast<std::uint64_t>(begin)},
                        0.0F, 0.02F);
      pieces += piece.bits();
    }
    EXPECT_EQ(pieces, whole.bits());
  }
}

TEST(Initialize, MomentsOfTheNormalAndRangeOfTheUniform) {
  constexpr std::int64_t n = 200000;
  Tensor y(DType::f32, n);
  const InitializedSlice slice{.y = y.data(), .n = n, .random = stream};
  initialize_normal(slice, 1.0F, 3.0F);
  double mean = 0.0;
  double square = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    mean += y.at(i) / n;
    square += (y.at(i) - 1.0) * (y.at(i) - 1.0) / n;
  }
  EXPECT_NEAR(mean, 1.0, 4 * 3.0 / std::sqrt(n));
  EXPECT_NEAR(square, 9.0, 4 * 9.0 * std::sqrt(2.0 / n));
  initialize_uniform(slice, -0.5F, 0.5F);
  for (std::int64_t i = 0; i < n; ++i) {
    ASSERT_GE(y.at(i), -0.5);
    ASSERT_LE(y.at(i), 0.5);
  }
}

}  // namespace
}  // namespace strata::cpu::test_initialize
