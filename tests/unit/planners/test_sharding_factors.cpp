/// @file
/// The space of factors, against AMSP's equations 3 to 7 written out over six numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "planners/states/factors.hpp"

namespace strata::test_sharding_factors {
namespace {

using testing::HasSubstr;

/// Every sextuple that the paper's constraints allow, by trying all numbers.
std::vector<StateFactors> by_equations(int r, int n) {
  std::vector<StateFactors> found;
  const auto single = [&](int s0, int s1) { return r % s0 == 0 && n % s1 == 0 && (s1 == 1 || s0 == r); };
  for (int p0 = 1; p0 <= r; ++p0)
    for (int p1 = 1; p1 <= n; ++p1)
      for (int o0 = p0; o0 <= r; ++o0)
        for (int o1 = p1; o1 <= n; ++o1) {
          if (!single(p0, p1) || !single(o0, o1) || o0 % p0 != 0 || o1 % p1 != 0) continue;
          for (int g0 = p0; g0 <= o0; ++g0)
            for (int g1 = p1; g1 <= o1; ++g1) {
              const bool is_p = g0 == p0 && g1 == p1, is_os = g0 == o0 && g1 == o1;
              if (is_p || is_os) found.push_back({.p = {p0, p1}, .g = {g0, g1}, .os = {o0, o1}});
            }
        }
  return found;
}

TEST(ShardingFactors, AreThoseOfTheEquations) {
  for (const Factor grid : {Factor{1, 1}, {2, 1}, {1, 4}, {2, 4}, {6, 4}, {8, 8}, {3, 6}}) {
    const std::vector<StateFactors> states = legal_states(grid);
    EXPECT_THAT(states, testing::UnorderedElementsAreArray(by_equations(grid.in_node, grid.nodes))) << to_string(grid);
    for (const StateFactors& state : states) EXPECT_EQ(broken_rule(state, grid), "") << to_string(state);
  }
}

TEST(ShardingFactors, OneHundredAndTwentyOneOn1024Ranks) { EXPECT_EQ(legal_states({8, 128}).size(), 121U); }

TEST(ShardingFactors, ABrokenRuleIsNamedWithItsNumbers) {
  const auto broken = [](const StateFactors& state) { return broken_rule(state, {8, 4}); };
  EXPECT_THAT(broken({.os = {3, 1}}), HasSubstr("os = 3x1 does not divide the grid of 8 ranks a node × 4 nodes"));
  EXPECT_THAT(broken({.os = {4, 2}}), HasSubstr("os = 4x2 takes 2 nodes but 4 of the 8 ranks in each"));
  EXPECT_THAT(broken({.p = {4, 1}, .g = {2, 1}, .os = {8, 1}}), HasSubstr("p = 4x1 does not divide g = 2x1"));
  EXPECT_THAT(broken({.p = {4, 1}, .g = {4, 1}, .os = {2, 1}}), HasSubstr("g = 4x1 does not divide os = 2x1"));
  EXPECT_THAT(broken({.p = {1, 1}, .g = {2, 1}, .os = {8, 1}}), HasSubstr("g = 2x1 is neither p = 1x1 nor os = 8x1"));
}

TEST(ShardingFactors, EveryOtherStateBreaksARule) {
  const Factor grid{4, 2};
  const std::vector<StateFactors> legal = legal_states(grid);
  std::vector<Factor> all;
  for (int s0 = 1; s0 <= 4; ++s0)
    for (int s1 = 1; s1 <= 2; ++s1) all.push_back({s0, s1});
  for (const Factor& p : all)
    for (const Factor& g : all)
      for (const Factor& os : all) {
        const StateFactors state{.p = p, .g = g, .os = os};
        EXPECT_EQ(broken_rule(state, grid).empty(), std::ranges::find(legal, state) != legal.end()) << to_string(state);
      }
}

TEST(ShardingFactors, AnOptionIsAFactorOrItsWord) {
  EXPECT_EQ(factor_option("p", "planner", "planner"), std::nullopt);
  EXPECT_EQ(factor_option("p", "4x2", "planner"), (Factor{4, 2}));
  try {
    factor_option("p", "4*2", "planner");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("strategy.p = \"4*2\": accepted: planner"));
  }
}

}  // namespace
}  // namespace strata::test_sharding_factors
