/// @file
/// gpipe and 1f1b train what `single` trains. Where both sum in one order, every bit is equal on real models; where
/// they do not, exact inputs are compared with == and real ones within rounding.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "mpi/exec/expect_parts.hpp"
#include "mpi/exec/staged_networks.hpp"
#include "support/made_up_order.hpp"

namespace strata::test_pipeline {
namespace {

class Pipeline : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }

  /// Numbers of stages that this world can have.
  std::vector<int> stage_counts() const {
    std::vector<int> counts;
    for (int stages = 1; stages <= size(); ++stages) {
      if (size() % stages == 0) counts.push_back(stages);
    }
    return counts;
  }

  void expect_equal(const Trained& ours, const Trained& reference, const std::string& what) const {
    expect_equal_parts(world, ours, reference, what);
  }
};

constexpr const char* modes[] = {"gpipe", "1f1b"};
constexpr int num_blocks = 5;

TEST_F(Pipeline, ExactInputsGiveEqualBits) {
  for (const auto& make : {exact_mlp, exact_tied, exact_skip}) {
    for (const int micro_batches : {1, 2, 4}) {
      Training training = make(micro_batches, num_blocks);
      const Trained reference = train(training, "single", 1, world, engine);
      for (const auto& [name, values] : reference.parameters) {
        if (name == "head.bias") continue;  // its gradient is a difference of counts, which may be 0
        EXPECT_NE(reference.initial.at(name), values) << training.graph.name << ": " << name << " must have moved";
      }
      for (const char* mode : modes) {
        for (const int stages : stage_counts()) {
          if (8 % (size() / stages) != 0) continue;  // three replicas: 1 / 3 is no float
          for (const Recompute recompute : {Recompute::none, Recompute::block}) {
            training.options["stages"] = std::int64_t{stages};
            training.plan.recompute = recompute;
            const Trained ours = train(training, mode, size(), world, engine);
            expect_equal(ours, reference,
                         fmt::format("{} {}, {} stages of {}, {} micro-batches", training.graph.name, mode, stages,
                                     size(), micro_batches));
          }
        }
      }
      training.plan.recompute = Recompute::none;
    }
  }
}

/// Programs follow their order, whatever it is called.
TEST_F(Pipeline, AMadeUpOrderGivesEqualBits) {
  for (const auto& make : {exact_mlp, exact_tied, exact_skip}) {
    for (const int micro_batches : {2, 4}) {
      Training training = make(micro_batches, num_blocks);
      const Trained reference = train(training, "single", 1, world, engine);
      training.order = by_stage(two_forwards_one_backward);
      for (const int stages : stage_counts()) {
        if (8 % (size() / stages) != 0) continue;
        training.options["stages"] = std::int64_t{stages};
        expect_equal(
            train(training, "gpipe", size(), world, engine), reference,
            fmt::format("{}, {} stages of {}, {} micro-batches", training.graph.name, stages, size(), micro_batches));
      }
    }
  }
}

// ---- real models -------------------------------------------------------------------------------------------------

bool is_tied(const RealModel& model) { return std::string_view(model.name) == "gpt"; }

/// Without replicas 1f1b adds micro-batches up as `single` does; gpipe as it does itself on one rank.
TEST_F(Pipeline, WithoutReplicasEveryBitIsEqualOnRealModels) {
  for (const RealModel& model : staged_models()) {
    if (is_tied(model)) continue;  // contributions of head and embedding are added in another order
    for (const int micro_batches : {1, 2, 5}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Training training = with(build_model(model.options), 4 * micro_batches, micro_batches);
        training.plan.dtypes = {dtype, dtype};
        training.plan.recompute = micro_batches == 2 ? Recompute::block : Recompute::none;
        training.plan.optimizer.momentum = 0.5;
        training.plan.optimizer.weight_decay = 0.01;
        training.steps = 2;
        training.learning_rate = 0.05;
        for (const auto& [mode, of_one] : {std::pair{"1f1b", "single"}, {"gpipe", "gpipe"}}) {
          training.options.clear();
          const Trained reference = train(training, of_one, 1, world, engine);
          const Trained ours = train(training, mode, size(), world, engine);
          expect_equal(ours, reference,
                       fmt::format("{} {} of {}, {} micro-batches", model.name, mode, size(), micro_batches));
        }
      }
    }
  }
}

TEST_F(Pipeline, GradientsOfRealModels) {
  for (const RealModel& model : staged_models()) {
    for (const char* mode : modes) {
      for (const int stages : stage_counts()) {
        const int micro_batches = 3;
        Training training = with(build_model(model.options), 24 * micro_batches, micro_batches);
        training.options["stages"] = std::int64_t{stages};
        // So large a rate that the gradient outweighs the weight: (w0 - w1) / rate is the gradient to full precision.
        training.learning_rate = 4096.0;
        training.plan.optimizer.clip_norm = 1e30;       // computes the norm and clips nothing
        if (mode == modes[0] && stages == 1) continue;  // what 1f1b tells on one stage is enough
        const Trained reference = train(training, "single", 1, world, engine);
        const Trained ours = train(training, mode, size(), world, engine);
        for (const auto& [name, after] : ours.parameters) {
          std::vector<float> expected(after.size());
          std::vector<float> gradient(after.size());
          for (std::size_t i = 0; i < after.size(); ++i) {
            expected[i] = reference.initial.at(name)[i] - reference.parameters.at(name)[i];
            gradient[i] = ours.initial.at(name)[i] - after[i];
          }
          EXPECT_GT(norm(expected), 0.0) << model.name << " " << name;
          EXPECT_LE(relative_difference(gradient, expected), 1e-5)
              << model.name << " " << name << ", " << mode << " in " << stages;
        }
        EXPECT_NEAR(ours.losses[0], reference.losses[0], 1e-5 * reference.losses[0]) << model.name;
        EXPECT_NEAR(ours.norms[0], reference.norms[0], 1e-5 * reference.norms[0])
            << model.name << ": every gradient is counted once";
      }
    }
  }
}

TEST_F(Pipeline, TwentyClippedStepsOfRealModels) {
  for (const RealModel& model : staged_models()) {
    Training training = with(build_model(model.options), 24, 2);
    training.options["stages"] = std::int64_t{stage_counts().back()};
    training.steps = 20;
    // A ReLU or a maximum that flips turns rounding into a finite difference: so slow that none does.
    training.learning_rate = std::string_view(model.name) == "vgg" ? 1e-4 : 0.01;
    training.plan.optimizer.momentum = 0.5;
    training.plan.optimizer.weight_decay = 0.01;
    training.plan.optimizer.clip_norm = 0.5;
    const Trained reference = train(training, "single", 1, world, engine);
    for (const char* mode : modes) {
      const Trained ours = train(training, mode, size(), world, engine);
      for (const auto& [name, after] : ours.parameters) {
        EXPECT_LE(relative_difference(after, reference.parameters.at(name)), 1e-5) << model.name << " " << name;
      }
      for (std::size_t i = 0; i < reference.norms.size(); ++i) {
        EXPECT_NEAR(ours.norms[i], reference.norms[i], 1e-4 * reference.norms[i]) << model.name;
        EXPECT_NEAR(ours.losses[i], reference.losses[i], 1e-4 * reference.losses[i]) << model.name;
      }
    }
  }
}

/// Copies of a tied table, replicas of a stage: whoever holds a parameter holds the same bits.
TEST_F(Pipeline, EveryCopyOfAParameterStaysEqual) {
  for (const int stages : stage_counts()) {
    Training training = with(build_model(staged_models().front().options), 24, 2);
    training.options["stages"] = std::int64_t{stages};
    training.steps = 5;
    training.learning_rate = 1e-2;
    training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 0.5};
    const Trained ours = train(training, "1f1b", size(), world, engine);
    for (const auto& [name, values] : train(training, "single", 1, world, engine).parameters) {
      const auto mine = ours.parameters.find(name);
      const std::string bytes =
          mine == ours.parameters.end()
              ? std::string()
              : std::string(reinterpret_cast<const char*>(mine->second.data()), mine->second.size() * sizeof(float));
      std::vector<std::string> held = world.all_gather(bytes);
      std::erase(held, "");
      EXPECT_EQ(std::ssize(held), size() / stages * (name == "embedding.table" && stages > 1 ? 2 : 1)) << name;
      EXPECT_EQ(std::ranges::count(held, held.front()), std::ssize(held)) << name << " in " << stages << " stages";
    }
  }
}

TEST_F(Pipeline, RecomputationChangesNoBit) {
  for (const RealModel& model : staged_models()) {
    for (const char* mode : modes) {
      Training training = with(build_model(model.options), 12, 3);
      training.steps = 2;
      training.learning_rate = 0.1;
      const Trained kept = train(training, mode, size(), world, engine);
      training.plan.recompute = Recompute::block;
      const Trained again = train(training, mode, size(), world, engine);
      EXPECT_EQ(again.parameters, kept.parameters) << model.name;
      EXPECT_EQ(again.losses, kept.losses) << model.name;
    }
  }
}

/// Nothing is assumed about how much a transport takes before its receiver comes, or about who drives it.
TEST_F(Pipeline, EveryTransportDeliversTheSameBits) {
  Training training = with(build_model(staged_models().front().options), 12, 3);
  training.steps = 2;
  training.learning_rate = 0.1;
  for (const char* mode : modes) {
    const Trained expected = train(training, mode, size(), world, engine);
    for (const char* transport : {"mpi", "auto"}) {
      for (const comm::ProgressMode progress : {comm::ProgressMode::polling, comm::ProgressMode::thread}) {
        comm::Engine other{world, {.transport = transport, .progress = progress, .watchdog_seconds = 60}};
        EXPECT_EQ(train(training, mode, size(), world, other).parameters, expected.parameters)
            << mode << " over " << transport;
      }
    }
    comm::Engine slow{world, {.emulated_link = comm::EmulatedLink{1e-5, 1e-9}, .watchdog_seconds = 60}};
    EXPECT_EQ(train(training, mode, size(), world, slow).parameters, expected.parameters) << mode;
  }
}

TEST_F(Pipeline, MemoryAndBytesAreTheProgrammedOnes) {
  for (const RealModel& model : staged_models()) {
    for (const char* mode : modes) {
      for (const int stages : stage_counts()) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          Training training = with(build_model(model.options), 24, 6);
          training.options["stages"] = std::int64_t{stages};
          training.plan.dtypes = {dtype, dtype};
          training.plan.optimizer.clip_norm = stages == 2 ? 1.0 : 0.0;
          training.steps = 2;
          if (24 % (size() / stages * 6) != 0) continue;
          const Trained trained = train(training, mode, size(), world, engine);
          const BytesByCollective predicted = bytes_by_collective(trained.program);
          for (int kind = 0; kind < num_collectives; ++kind) {
            EXPECT_EQ(trained.last_step.bytes_sent[static_cast<std::size_t>(kind)], predicted.bytes[kind])
                << model.name << " " << to_string(static_cast<Collective>(kind));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::test_pipeline
