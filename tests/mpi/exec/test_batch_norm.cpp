/// @file
/// Batch norm under modes: a rank normalises by the statistics of the micro-batch that it computes, so the reference of
/// N replicas with M micro-batches each is one rank that accumulates the same N·M micro-batches.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "mpi/exec/networks.hpp"

namespace strata::test_batch_norm {
namespace {

constexpr int samples_of_micro_batch = 3;

class BatchNorm : public testing::Test {
 protected:
  /// @p micro_batches a rank, on @p replicas.
  static Training resnet(int micro_batches, int replicas) {
    Training training = real({"resnet", {.name = "resnet-nano"}}, samples_of_micro_batch * micro_batches * replicas);
    training.plan.schedule.micro_batches = micro_batches;
    training.learning_rate = 4096.0;  // outweighs the weight, so that the difference is the gradient to full precision
    return training;
  }
  int size() const { return world.size(); }

  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

std::vector<float> gradient_of(const Trained& trained, const std::string& name) {
  std::vector<float> gradient = trained.initial.at(name);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= trained.parameters.at(name)[i];
  return gradient;
}

TEST_F(BatchNorm, ReplicasAreAsOneRankThatAccumulatesTheirMicroBatches) {
  const Trained reference = train(resnet(2 * size(), 1), "single", 1, world, engine);
  for (const char* mode : {"ddp", "zero1", "zero3"}) {
    const Trained ours = train(resnet(2, size()), mode, size(), world, engine);
    for (const auto& [name, unused] : reference.parameters) {
      const std::vector<float> expected = gradient_of(reference, name);
      EXPECT_GT(norm(expected), 0.0) << name;
      EXPECT_LE(relative_difference(gradient_of(ours, name), expected), 1e-4) << mode << " " << name;
    }
    EXPECT_NEAR(ours.losses[0], reference.losses[0], 1e-5 * reference.losses[0]) << mode;
  }
}

/// What the test above could not see if statistics were of the whole batch.
TEST_F(BatchNorm, OtherMicroBatchesAreAnotherGradient) {
  const Trained ours = train(resnet(2, size()), "ddp", size(), world, engine);
  Training whole = resnet(2 * size(), 1);
  whole.plan.schedule.micro_batches = 1;
  const Trained other = train(whole, "single", 1, world, engine);
  EXPECT_GT(relative_difference(gradient_of(ours, "stem.conv.weight"), gradient_of(other, "stem.conv.weight")), 1e-2);
}

/// gpipe goes backward through the last micro-batch first: its gradients are the same terms in another order.
TEST_F(BatchNorm, StagesAreAsOneRank) {
  const int micro_batches = 2 * size();
  const Trained reference = train(resnet(micro_batches, 1), "single", 1, world, engine);
  for (const std::string mode : {"1f1b", "interleaved", "gpipe"}) {
    const Trained ours = train(resnet(micro_batches, 1), mode, size(), world, engine);
    EXPECT_EQ(ours.losses, reference.losses) << mode;
    EXPECT_LT(ours.parameters.size(), reference.parameters.size()) << mode << ": those of this rank's stages";
    EXPECT_GT(ours.parameters.size(), 0U) << mode;
    for (const auto& [name, values] : ours.parameters) {
      if (mode == "gpipe") {
        EXPECT_LE(relative_difference(values, reference.parameters.at(name)), 1e-4) << name;
      } else {
        EXPECT_EQ(values, reference.parameters.at(name)) << mode << " " << name;
      }
    }
  }
}

TEST_F(BatchNorm, RecomputedStatisticsAreTheSame) {
  Training training = resnet(2, 1);
  const Trained reference = train(training, "single", 1, world, engine);
  training.plan.recompute = Recompute::block;
  const Trained again = train(training, "single", 1, world, engine);
  EXPECT_EQ(again.parameters, reference.parameters);
}

TEST_F(BatchNorm, SubBatchesAreRefused) {
  Training training = resnet(2, 1);
  training.plan.schedule.sub_batches = 2;
  training.plan.strategy = "single";
  training.plan.mesh.axes = {{"data", 1}};
  std::string message;
  try {
    lower(training.plan, training.graph, 0, cpu::workspaces_of({}));
  } catch (const Unsupported& refused) {
    message = refused.what();
  }
  EXPECT_NE(message.find("schedule.sub_batches = 2 with stem.norm (batch_norm)"), std::string::npos) << message;
}

}  // namespace
}  // namespace strata::test_batch_norm
