/// @file
/// Pipelines whose ranks hold several stages each train what `single` trains: exact inputs to the last bit, real models
/// without replicas too, which add micro-batches up in one order.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mpi/exec/expect_parts.hpp"
#include "mpi/exec/staged_networks.hpp"

namespace strata::test_interleaved {
namespace {

class Interleaved : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }

  void expect_equal(const Trained& ours, const Trained& reference, const std::string& what) const {
    expect_equal_parts(world, ours, reference, what);
  }

  /// Ranks of a pipeline that this world can have, beside replicas whose number leaves exact inputs exact.
  std::vector<int> pipelines() const {
    std::vector<int> ranks;
    for (int n = 2; n <= size(); ++n) {
      if (size() % n == 0 && 8 % (size() / n) == 0) ranks.push_back(n);
    }
    return ranks;
  }
};

void in_chunks(Training& training, int ranks, int chunks) {
  training.options["stages"] = std::int64_t{ranks * chunks};
  training.options["chunks"] = std::int64_t{chunks};
}

TEST_F(Interleaved, ExactInputsGiveEqualBits) {
  for (const int ranks : pipelines()) {
    // Sums over replicas are in another order, and sums of a deep network's gradients are not exact.
    const int num_blocks = ranks == size() ? 13 : 6;
    for (const int rounds : {1, 2, 4}) {
      for (const auto& make : {exact_mlp, exact_tied, exact_skip}) {
        Training training = make(rounds * ranks, num_blocks);
        // A third of a gradient is no float, and those of a tied table are added in another order.
        if (ranks == 3 && training.graph.name == "tied") continue;
        const Trained reference = train(training, "single", 1, world, engine);
        for (const int chunks : {1, 2, 3}) {
          in_chunks(training, ranks, chunks);
          training.plan.recompute = chunks == 2 ? Recompute::block : Recompute::none;
          expect_equal(train(training, "interleaved", size(), world, engine), reference,
                       fmt::format("{}, {} ranks of {} stages on {}, {} micro-batches", training.graph.name, ranks,
                                   chunks, size(), training.plan.schedule.micro_batches));
        }
        training.plan.recompute = Recompute::none;
      }
    }
  }
}

/// Nine blocks each, uneven in four, six and eight stages.
std::vector<RealModel> real_models() {
  return {
      {"gpt",
       {.name = "gpt-nano", .layers = 9, .vocabulary = 101, .sequence_length = 9, .dropout = 0.1, .tied_head = false}},
      {"llama", {.name = "llama-nano", .layers = 9, .vocabulary = 101, .sequence_length = 9}},
  };
}

TEST_F(Interleaved, WithoutReplicasEveryBitIsEqualOnRealModels) {
  for (const RealModel& model : real_models()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Training training = with(build_model(model.options), 4 * size(), 2 * size());
      training.plan.dtypes = {dtype, dtype};
      training.plan.recompute = dtype == DType::f32 ? Recompute::none : Recompute::block;
      training.plan.optimizer.momentum = 0.5;
      training.plan.optimizer.weight_decay = 0.01;
      training.steps = 2;
      training.learning_rate = 0.05;
      const Trained reference = train(training, "single", 1, world, engine);
      in_chunks(training, size(), 2);
      for (const bool in_backward : {false, true}) {
        training.plan.overlap.update = in_backward ? "backward" : "none";
        expect_equal(train(training, "interleaved", size(), world, engine), reference,
                     fmt::format("{} in {}, updates in backward: {}", model.name, to_string(dtype), in_backward));
      }
      training.plan.overlap.update = "none";
      training.options.clear();
    }
  }
}

/// A tied table is on the first and on the last rank; clipping sums the norm over all stages, each once.
TEST_F(Interleaved, TenClippedStepsOfATiedModel) {
  Training training =
      with(build_model({.name = "gpt-nano", .layers = 8, .vocabulary = 101, .sequence_length = 9, .tied_head = true}),
           4 * size(), size());
  training.steps = 10;
  training.learning_rate = 0.01;
  training.plan.optimizer.momentum = 0.5;
  training.plan.optimizer.weight_decay = 0.01;
  training.plan.optimizer.clip_norm = 0.5;
  const Trained reference = train(training, "single", 1, world, engine);
  in_chunks(training, size(), 2);
  const Trained ours = train(training, "interleaved", size(), world, engine);
  for (const auto& [name, after] : ours.parameters) {
    EXPECT_LE(relative_difference(after, reference.parameters.at(name)), 1e-5) << name;
  }
  for (std::size_t i = 0; i < reference.norms.size(); ++i) {
    EXPECT_NEAR(ours.norms[i], reference.norms[i], 1e-4 * reference.norms[i]);
    EXPECT_NEAR(ours.losses[i], reference.losses[i], 1e-4 * reference.losses[i]);
  }
}

TEST_F(Interleaved, EveryTransportDeliversTheSameBits) {
  Training training = with(build_model(real_models().front().options), 4 * size(), 2 * size());
  training.steps = 2;
  training.learning_rate = 0.1;
  in_chunks(training, size(), 2);
  const Trained expected = train(training, "interleaved", size(), world, engine);
  for (const comm::ProgressMode progress : {comm::ProgressMode::polling, comm::ProgressMode::thread}) {
    comm::Engine other{world, {.transport = "mpi", .progress = progress, .watchdog_seconds = 60}};
    EXPECT_EQ(train(training, "interleaved", size(), world, other).parameters, expected.parameters);
  }
  comm::Engine slow{world, {.emulated_link = comm::EmulatedLink{1e-5, 1e-9}, .watchdog_seconds = 60}};
  EXPECT_EQ(train(training, "interleaved", size(), world, slow).parameters, expected.parameters);
}

TEST_F(Interleaved, BytesAreTheProgrammedOnes) {
  Training training = with(build_model(real_models().back().options), 4 * size(), 2 * size());
  training.steps = 2;
  in_chunks(training, size(), 2);
  const Trained trained = train(training, "interleaved", size(), world, engine);
  const BytesByCollective predicted = bytes_by_collective(trained.program);
  for (int kind = 0; kind < num_collectives; ++kind) {
    EXPECT_EQ(trained.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind])
        << to_string(static_cast<Collective>(kind));
  }
}

}  // namespace
}  // namespace strata::test_interleaved
