/// @file
/// What ranks do not divide: samples, features, heads and vocabulary of which the last ranks have fewer, or none, are
/// trained as one rank trains them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mpi/exec/expect_same.hpp"
#include "mpi/exec/laid_out.hpp"

namespace strata {
namespace {

using Uneven = LaidOut;

/// Sums of eighths have no rounding, in whatever order: 8 samples over 3 ranks are 3, 3 and 2, and of 2 micro-batches
/// of 4 the last of 8 ranks have none.
TEST_F(Uneven, SamplesAreExactOnExactInputs) {
  for (const int micro_batches : {1, 2}) {
    Training training = exact(micro_batches);
    if (size() % 2 == 0) training.plan.global_batch /= 2;
    const Trained reference = alone(training);
    for (const char* mode : {"ddp", "zero2", "zero3", "osdp"}) {
      const Trained ours = train(training, mode, size(), world, engine);
      for (const auto& [name, values] : reference.parameters) {
        EXPECT_EQ(ours.parameters.at(name), values) << name << ", " << mode << ", micro-batches " << micro_batches;
      }
      EXPECT_EQ(ours.losses, reference.losses) << mode;
    }
  }
}

/// Five samples: with one a rank more than three ranks leave none for some. Convolutions, attention and dropout.
TEST_F(Uneven, SamplesOfRealModels) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 5);
    training.steps = 2;
    training.learning_rate = 0.02;
    const Trained reference = alone(training);
    for (const char* mode : {"ddp", "zero3"}) {
      const Trained ours = train(training, mode, size(), world, engine);
      expect_same(ours, reference, fmt::format("{} by {}", model.name, mode));
    }
  }
}

}  // namespace
}  // namespace strata
