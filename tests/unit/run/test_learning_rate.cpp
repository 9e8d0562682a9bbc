/// @file
/// Schedules at the steps where their formulas can be checked by hand.

#include <gtest/gtest.h>

#include "run/learning_rate.hpp"

namespace strata::run::test_learning_rate {
namespace {

/// Ten samples in steps of four: epochs begin at samples 0, 10, 20 …, which are in steps 0, 2, 5, 7, 10 ….
constexpr predict::TrainingLength length{.num_steps = 24, .order = {.num_samples = 10, .global_batch = 4}};

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
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), length, 0), 0.2) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), length, 2), 0.6) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), length, 3), 0.8) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(section(schedule), length, 4), 0.8) << schedule;
  }
}

TEST(LearningRate, Constant) { EXPECT_DOUBLE_EQ(learning_rate(section("constant"), length, 100000), 0.8); }

TEST(LearningRate, StepHalvesEveryTenth) {
  EXPECT_DOUBLE_EQ(learning_rate(section("step"), length, 13), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(section("step"), length, 14), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(section("step"), length, 24), 0.2);
}

TEST(LearningRate, CosineEndsAtTheLeastRateAndStays) {
  EXPECT_DOUBLE_EQ(learning_rate(section("cosine"), length, 9), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(section("cosine"), length, 14), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(section("cosine"), length, 1000), 0.2);
}

TEST(LearningRate, CosineWithoutDecayStepsEndsWithTraining) {
  TrainSection train = section("cosine");
  train.decay_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 4), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 14), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 24), 0.2);
}

TEST(LearningRate, DecaysInTheFirstStepThatBeginsInAnEpochOfTheList) {
  TrainSection train = section("step");
  train.decay_steps = 0;
  train.warmup_steps = 0;
  train.decay_epochs = {1, 3, 4};
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 0), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 2), 0.8);  // samples 8 to 11: epoch 1 begins inside
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 3), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 7), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 8), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 9), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 10), 0.1);  // begins with sample 40, the first of epoch 4
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 1000000), 0.1);
}

TEST(LearningRate, EpochsAreNotShiftedByTheWarmUp) {
  TrainSection train = section("step");
  train.decay_steps = 0;
  train.warmup_steps = 4;
  train.decay_epochs = {1, 2};
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 3), 0.8);  // of the warm-up alone
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 4), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(train, length, 5), 0.2);
}

}  // namespace
}  // namespace strata::run::test_learning_rate
