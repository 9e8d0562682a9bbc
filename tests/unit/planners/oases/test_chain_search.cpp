/// @file
/// The search over chains finds what looking at everything finds, whatever memory allows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "planners/oases/chain_search.hpp"
#include "planners/oases/chain_seconds.hpp"
#include "support/random_chains.hpp"
#include "support/refusal.hpp"

namespace strata::test_chain_search {
namespace {

TEST(ChainSearch, ExactIsExhaustive) {
  std::mt19937 generator(3);
  int limited = 0, impossible = 0;
  for (int round = 0; round < 2'000; ++round) {
    const Chain chain = random_chain(generator, 1 + round % 8, 2 + round % 3);
    const ChainAnswer exact = search_exactly(chain), all = search_exhaustively(chain);
    ASSERT_EQ(exact.fits(), all.fits()) << round;
    if (!all.fits()) {
      ++impossible;
      continue;
    }
    ASSERT_NEAR(exact.seconds, all.seconds, 1e-12 * all.seconds) << round;
    ASSERT_EQ(exact.seconds, chain_seconds(chain, exact.choices));
    ASSERT_EQ(exact.bytes, chain_bytes(chain, exact.choices));
    ASSERT_TRUE(chain.capacity_bytes == 0 || exact.bytes <= chain.capacity_bytes);
    Chain unlimited = chain;
    unlimited.capacity_bytes = 0;
    if (search_exactly(unlimited).seconds < exact.seconds) ++limited;
  }
  // The instances are worth something: memory binds in most, and in some nothing fits.
  EXPECT_GT(limited, 800);
  EXPECT_GT(impossible, 10);
}

TEST(ChainSearch, MoreMemoryNeverCostsTime) {
  std::mt19937 generator(4);
  for (int round = 0; round < 20; ++round) {
    Chain chain = random_chain(generator, 24, 5);
    double before = impossible_seconds;
    for (chain.capacity_bytes = 1'000; chain.capacity_bytes < 12'000; chain.capacity_bytes += 500) {
      const ChainAnswer answer = search_exactly(chain);
      if (!answer.fits()) continue;
      ASSERT_LE(answer.seconds, before * (1.0 + 1e-12));
      before = answer.seconds;
    }
  }
}

/// What the authors' program can run is among what the exact search looks at.
TEST(ChainSearch, TwoDegreesInOrderAreNeverBetter) {
  std::mt19937 generator(5);
  for (int round = 0; round < 500; ++round) {
    const Chain chain = random_chain(generator, 1 + round % 12, 4);
    const ChainAnswer two = search_two_in_order(chain), exact = search_exactly(chain);
    if (!two.fits()) continue;
    ASSERT_TRUE(exact.fits());
    ASSERT_LE(exact.seconds, two.seconds * (1.0 + 1e-12));
    for (std::size_t i = 1; i + 1 < two.choices.size(); ++i) ASSERT_GE(two.choices[i], two.choices[i - 1]);
  }
}

TEST(ChainSearch, EndsWithOneWeightAgree) {
  std::mt19937 generator(6);
  for (int round = 0; round < 200; ++round) {
    Chain chain = random_chain(generator, 6, 3);
    chain.ends_agree = true;
    for (const ChainAnswer& answer : {search_exactly(chain), search_exhaustively(chain), search_two_in_order(chain)}) {
      ASSERT_TRUE(!answer.fits() || answer.choices.front() == answer.choices.back());
    }
  }
}

TEST(ChainSearch, ExhaustiveRefusesWhatItCannotFinish) {
  std::mt19937 generator(7);
  const Chain chain = random_chain(generator, 48, 6);
  EXPECT_THAT(refusal([&] { search_exhaustively(chain); }), testing::HasSubstr("48 nodes of 6 choices have 2.25e+37"));
}

}  // namespace
}  // namespace strata::test_chain_search
