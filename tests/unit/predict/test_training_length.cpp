/// @file
/// Epochs as steps, at batches that divide the data and at others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "predict/training_length.hpp"

namespace strata::predict::test_training_length {
namespace {

std::int64_t steps_of(std::int64_t epochs, std::int64_t num_samples, std::int64_t global_batch) {
  Experiment experiment;
  experiment.train.epochs = epochs;
  return training_length(experiment, {.num_samples = num_samples, .global_batch = global_batch}).num_steps;
}

TEST(TrainingLength, StepsAreThoseThatContainTheEpochs) {
  EXPECT_EQ(steps_of(1, 12, 4), 3);
  EXPECT_EQ(steps_of(1, 13, 4), 4);
  EXPECT_EQ(steps_of(3, 13, 4), 10);  // 39 samples: batches go on over the ends of epochs
  EXPECT_EQ(steps_of(4, 13, 4), 13);
  EXPECT_EQ(steps_of(2, 3, 8), 1);
  EXPECT_EQ(steps_of(100, 50'000, 128), 39'063);
}

TEST(TrainingLength, TheLastStepBeginsInTheLastEpoch) {
  for (const std::int64_t batch : {1, 3, 4, 7, 12}) {
    Experiment experiment;
    experiment.train.epochs = 5;
    const TrainingLength length = training_length(experiment, {.num_samples = 13, .global_batch = batch});
    EXPECT_EQ(length.order.epoch(length.num_steps - 1), 4) << batch;
    EXPECT_EQ(length.order.epoch(length.num_steps), 5) << batch;
  }
}

TEST(TrainingLength, StepsAndTheRuleOfMeasureNeedNoEpochs) {
  Experiment experiment;
  const data::Order order{.num_samples = 10, .global_batch = 4};
  EXPECT_EQ(training_length(experiment, order).num_steps, 0);
  experiment.train.steps = 7;
  EXPECT_EQ(training_length(experiment, order).num_steps, 7);
  EXPECT_EQ(training_length(experiment, order).order.num_samples, 10);
}

TEST(TrainingLength, MoreStepsThanAreAcceptedAreRefused) {
  try {
    steps_of(1'000'000, std::numeric_limits<std::int64_t>::max(), 8);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("train.epochs: 1000000 epochs of 9223372036854775807 samples, 8 a "
                                                 "step; accepted: at most 1000000000000 steps"));
  }
}

}  // namespace
}  // namespace strata::predict::test_training_length
