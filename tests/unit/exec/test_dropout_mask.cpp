/// @file
/// The vectorised masks against RandomStream::uniform, element by element and exactly.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "exec/cpu/kernels/dropout_mask.hpp"

namespace strata::cpu::test_dropout_mask {
namespace {

struct Slice {
  std::uint64_t first_index;
  std::int64_t count;
};
// Every offset inside a block, lengths around 16, 32 and the internal chunk of 512, and indices whose block number
// passes 32 bits.
const Slice slices[] = {{0, 1},
                        {1, 2},
                        {2, 31},
                        {3, 32},
                        {4, 33},
                        {5, 511},
                        {7, 512},
                        {6, 513},
                        {1'000'003, 1030},
                        {(1ULL << 34U) - 9, 77},
                        {~0ULL - 200, 150},
                        {11, 0}};
const RandomStream streams[] = {{0, 0}, {0x0123456789abcdefULL, 0xfedcba9876543210ULL}, {~0ULL, ~0ULL}};

TEST(DropoutMask, ScaleEqualsUniform) {
  for (const RandomStream& random : streams) {
    for (const auto& [first, count] : slices) {
      for (const float probability : {0.0F, 0.1F, 0.5F, 0x1.0p-24F, 0.999F}) {
        std::vector<float> scale(static_cast<std::size_t>(count) + 1, -7.0F);
        dropout_scale_row(random, first, count, probability, scale.data());
        for (std::int64_t e = 0; e < count; ++e) {
          const bool keep = random.uniform(first + static_cast<std::uint64_t>(e)) >= probability;
          ASSERT_EQ(scale[static_cast<std::size_t>(e)], keep ? 1.0F / (1.0F - probability) : 0.0F)
              << first << " + " << e << ", p " << probability;
        }
        EXPECT_EQ(scale.back(), -7.0F);  // nothing beyond the row
      }
    }
  }
}

TEST(DropoutMask, BitsEqualUniform) {
  constexpr std::int64_t stride = 3;
  for (const RandomStream& random : streams) {
    for (const auto& [first, count] : slices) {
      const std::int64_t num_words = (count + 31) / 32;
      std::vector<std::uint32_t> bits(static_cast<std::size_t>(num_words * stride) + 1, 0xabcdU);
      dropout_keep_bits(random, first, count, 0.3F, bits.data(), stride);
      for (std::int64_t e = 0; e < num_words * 32; ++e) {
        const bool kept = ((bits[static_cast<std::size_t>(e / 32 * stride)] >> (e % 32)) & 1U) != 0;
        ASSERT_EQ(kept, e < count && random.uniform(first + static_cast<std::uint64_t>(e)) >= 0.3F)
            << first << " + " << e;
      }
      for (std::size_t i = 0; i < bits.size(); ++i) {
        if (i % stride != 0) {
          EXPECT_EQ(bits[i], 0xabcdU);
        }
      }
    }
  }
}

TEST(DropoutMask, RefusesProbabilityOutsideRange) {
  float scale = 0.0F;
  EXPECT_THROW(dropout_scale_row({}, 0, 1, 1.0F, &scale), InternalError);
  EXPECT_THROW(dropout_scale_row({}, 0, 1, -0.1F, &scale), InternalError);
}

}  // namespace
}  // namespace strata::cpu::test_dropout_mask
