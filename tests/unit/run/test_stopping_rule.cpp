/// @file
/// Known ranks of the binomial interval, and when it lets a run end.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "run/stopping_rule.hpp"

namespace strata::run::test_stopping_rule {
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

TEST(StoppingRule, NoStepIsTrainedPastTheMostThatAreAskedFor) {
  MeasureSection rule;
  rule.warmup_steps = 3;
  rule.max_steps = 10;
  EXPECT_EQ(latest_end(rule, 0, 0, {}), 13);
  EXPECT_EQ(latest_end(rule, 0, 100, {}), 113);                       // after a restart measuring begins anew
  EXPECT_EQ(latest_end(rule, 0, 100, {.fill = 2, .drain = 1}), 114);  // what fills is warm-up, too
  EXPECT_EQ(latest_end(rule, 0, 100, {.fill = 5, .drain = 1}), 116);
  EXPECT_EQ(latest_end(rule, 120, 100, {.fill = 2, .drain = 1}), 120);
}

TEST(StoppingRule, AFixedNumberOfStepsIsNeverPassed) {
  const MeasureSection rule;
  const std::vector<double> fast = {1e-4};
  EXPECT_EQ(steps_until_exchange(rule, 20, 0, 20, {}), 1);  // nothing is measured yet
  EXPECT_EQ(steps_until_exchange(rule, 20, 5, 20, fast), 15);
  EXPECT_EQ(steps_until_exchange(rule, 20, 20, 20, fast), 0);
  EXPECT_EQ(steps_until_exchange(rule, 1000, 5, 1000, fast), 64);
  EXPECT_EQ(steps_until_exchange(rule, 1000, 5, 1000, std::vector<double>{0.14}), 2);
  EXPECT_EQ(steps_until_exchange(rule, 1000, 5, 1000, std::vector<double>{7.0}), 1);
}

TEST(StoppingRule, RanksExchangeWhereTheRuleIsAskedNext) {
  MeasureSection rule;
  rule.min_steps = 10;
  rule.max_steps = 35;
  rule.stop_when_ci_below = 0.05;
  std::vector<double> fast = counted(32);
  for (double& seconds : fast) seconds *= 1e-4;  // of unequal steps, so that the interval stays wide
  const auto until = [&](std::size_t measured) {
    return steps_until_exchange(rule, 0, 3 + static_cast<std::int64_t>(measured), 38, std::span(fast).first(measured));
  };
  EXPECT_EQ(until(4), 6);   // to the least number
  EXPECT_EQ(until(10), 1);  // an eighth of what is measured
  EXPECT_EQ(until(24), 3);
  EXPECT_EQ(until(32), 3);  // to the most
  EXPECT_EQ(steps_until_exchange(rule, 0, 13, 38, std::vector<double>(10, 1e-4)), 0);
}

/// Steps that fill and drain ranks between checkpoints are trained and not measured: training ends all the same.
TEST(StoppingRule, NothingIsWaitedForBehindTheLastStep) {
  MeasureSection rule;
  rule.max_steps = 35;
  EXPECT_EQ(steps_until_exchange(rule, 0, 38, 38, std::vector<double>(12, 1e-4)), 0);
  EXPECT_EQ(steps_until_exchange(rule, 0, 38, 38, {}), 0);
}

}  // namespace
}  // namespace strata::run::test_stopping_rule
