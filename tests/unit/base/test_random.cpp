/// @file
/// Philox against the published vectors, and the distributions built on it.

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"

namespace strata::test_random {
namespace {

/// Random123's known-answer tests, philox4x32-10.
TEST(Philox, KnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, WordsAreLanesOfCountedBlocks) {
  const RandomStream random{.seed = 0x299f31d0a4093822, .stream = 0x0370734413198a2e};
  const std::uint64_t block = 0x85a308d3243f6a88 % (std::uint64_t{1} << 62);
  const auto words =
      philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), 0x13198a2e, 0x03707344},
                 {0xa4093822, 0x299f31d0});
  for (std::uint64_t lane = 0; lane < 4; ++lane) EXPECT_EQ(random.word(4 * block + lane), words[lane]);
}

TEST(RandomStream, SeedsAndStreamsDiffer) {
  const RandomStream a{.seed = 1, .stream = 1};
  const RandomStream b{.seed = 2, .stream = 1};
  const RandomStream c{.seed = 1, .stream = 2};
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    equal += a.word(i) == b.word(i) ? 1 : 0;
    equal += a.word(i) == c.word(i) ? 1 : 0;
  }
  EXPECT_EQ(equal, 0);
}

TEST(RandomStream, UniformFillsItsBins) {
  const RandomStream random{.seed = 4, .stream = 2};
  std::vector<int> bins(16);
  constexpr int n = 160000;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float u = random.uniform(i);
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ++bins[static_cast<std::size_t>(16.0F * u)];
  }
  double chi_squared = 0.0;
  for (const int count : bins) chi_squared += (count - n / 16.0) * (count - n / 16.0) / (n / 16.0);
  EXPECT_LT(chi_squared, 37.7);  // 15 degrees of freedom, 0.1 %
}

TEST(RandomStream, NormalIsBoxMullerOfItsWords) {
  const RandomStream random{.seed = 4, .stream = 3};
  for (std::uint64_t i = 0; i < 2000; i += 2) {
    const double u = (static_cast<double>(random.word(i) >> 2U) + 1.0) * 0x1p-30;
    const double radius = std::sqrt(-2.0 * std::log(u));
    const double angle = 6.283185307179586 * static_cast<double>(random.word(i + 1)) * 0x1p-32;
    ASSERT_NEAR(random.normal(i), radius * std::cos(angle), 3e-6);
    ASSERT_NEAR(random.normal(i + 1), radius * std::sin(angle), 3e-6);
  }
}

}  // namespace
}  // namespace strata::test_random
