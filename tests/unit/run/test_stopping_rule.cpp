/// @file
/// Known ranks of the binomial interval, and when it lets a run end.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "run/stopping_rule.hpp"

namespace strata::run {
namespace {

std::vector<double> counted(int n) {
  std::vector<double> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return values;
}

TEST(StoppingRule, BelowEightValuesThereIsNoInterval) { EXPECT_TRUE(std::isinf(relative_half_width(counted(7)))); }

TEST(StoppingRule, RanksAreThoseOfTheTables) {
  EXPECT_DOUBLE_EQ(relative_half_width(counted(8)), 3.5 / 4.5);      // [x1, x8]
  EXPECT_DOUBLE_EQ(relative_half_width(counted(30)), 7.5 / 15.5);    // [x8, x23]
  EXPECT_DOUBLE_EQ(relative_half_width(counted(100)), 13.5 / 50.5);  // [x37, x64]
}

TEST(StoppingRule, OrderDoesNotMatter) {
  std::vector<double> values = counted(30);
  std::swap(values[0], values[29]);
  std::swap(values[7], values[16]);
  EXPECT_DOUBLE_EQ(relative_half_width(values), relative_half_width(counted(30)));
}

TEST(StoppingRule, EndsWhenNarrowAndNotBeforeTheLeastNumberOfSteps) {
  MeasureSection rule;
  rule.min_steps = 10;
  rule.max_steps = 50;
  rule.stop_when_ci_below = 0.05;
  const std::vector<double> equal(50, 1.0);
  EXPECT_FALSE(measured_enough(rule, std::span(equal).first(9)));
  EXPECT_TRUE(measured_enough(rule, std::span(equal).first(10)));
  const std::vector<double> wide = counted(50);
  EXPECT_FALSE(measured_enough(rule, std::span(wide).first(49)));
  EXPECT_TRUE(measured_enough(rule, wide));
}

}  // namespace
}  // namespace strata::run
