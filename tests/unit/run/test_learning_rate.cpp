/// @file
/// Schedules at the steps where their formulas can be checked by hand.

#include <gtest/gtest.h>

#include "run/learning_rate.hpp"

namespace strata::run {
namespace {

TrainSection section(const char* schedule) {
  TrainSection train;
  train.schedule = schedule;
  train.learning_rate = 0.8;
  train.min_learning_rate = 0.2;
  train.warmup_steps = 4;
  train.decay_steps = 10;
  train.decay_factor = 0.5;
  return train;
}

TEST(LearningRate, WarmUpIsLinearAndReachesTheRate) {
  for (const char* schedule : {"constant", "step", "cosine"}) {
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), 0), 0.2) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), 2), 0.6) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), 3), 0.8) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), 4), 0.8) << schedule;
  }
}

TEST(LearningRate, Constant) { EXPECT_DOUBLE_EQ(learning_rate(section("constant"), 100000), 0.8); }

TEST(LearningRate, StepHalvesEveryTenth) {
  EXPECT_DOUBLE_EQ(learning_rate(section("step"), 13), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(section("step"), 14), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(section("step"), 24), 0.2);
}

TEST(LearningRate, CosineEndsAtTheLeastRateAndStays) {
  EXPECT_DOUBLE_EQ(learning_rate(section("cosine"), 9), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(section("cosine"), 14), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(section("cosine"), 1000), 0.2);
}

}  // namespace
}  // namespace strata::run
