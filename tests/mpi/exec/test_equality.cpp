/// @file
/// Every mode trains what its reference trains: exact inputs compared with ==, real models within rounding.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "exec/cpu/convolution_choice.hpp"
#include "mpi/exec/networks.hpp"

namespace strata::test_equality {
namespace {

class Equality : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }
};

TEST_F(Equality, DdpIsExactOnExactInputs) {
  for (const int micro_batches : {1, 2, 4}) {
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{100}, std::int64_t{1} << 20}) {
      Training training = exact(micro_batches);
      training.plan.overlap.bucket_bytes = bucket_bytes;
      const Trained reference = train(training, "single", 1, world, engine);
      const Trained ours = train(training, "ddp", size(), world, engine);
      for (const auto& [name, values] : reference.parameters) {
        EXPECT_EQ(ours.parameters.at(name), values) << name << ", micro-batches " << micro_batches;
        if (name != "head.bias") {
          EXPECT_NE(reference.initial.at(name), values) << name << " must have moved";
        }
      }
      EXPECT_EQ(ours.losses, reference.losses);
    }
  }
}

std::int64_t num_reductions(const Program& program) {
  return std::ranges::count_if(program.body,
                               [](const Instruction& in) { return in.is_collective() && in.phase == Phase::reduce; });
}

/// Of the fused bias [query, key, value], the key's part. Softmax over keys does not change when all scores of a query
/// shift, so its exact gradient is zero and only rounding is left of it.
std::span<const float> key_part(std::span<const float> bias) { return bias.subspan(bias.size() / 3, bias.size() / 3); }
bool has_zero_gradient_in_key_part(const RealModel& model, const std::string& parameter) {
  const std::string_view name = model.name;
  return (name == "gpt" || name == "vit") && parameter.ends_with("attn.qkv.bias");
}

TEST_F(Equality, DdpGradientsOfRealModels) {
  int zero_gradients = 0;
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    // So large a rate that the gradient outweighs the weight: (w0 - w1) / rate is the gradient to full precision.
    training.learning_rate = 4096.0;
    const Trained reference = train(training, "single", 1, world, engine);
    const Trained ours = train(training, "ddp", size(), world, engine);
    for (const auto& [name, after] : reference.parameters) {
      std::vector<float> expected(after.size());
      std::vector<float> gradient(after.size());
      for (std::size_t i = 0; i < after.size(); ++i) {
        expected[i] = reference.initial.at(name)[i] - after[i];
        gradient[i] = ours.initial.at(name)[i] - ours.parameters.at(name)[i];
      }
      EXPECT_GT(norm(expected), 0.0) << model.name << " " << name;
      EXPECT_LE(relative_difference(gradient, expected), 1e-5) << model.name << " " << name;
      if (has_zero_gradient_in_key_part(model, name)) {
        EXPECT_LE(norm(key_part(expected)), 1e-5 * norm(expected)) << name;
        EXPECT_LE(norm(key_part(gradient)), 1e-5 * norm(expected)) << name;
        ++zero_gradients;
      }
    }
    EXPECT_NEAR(ours.losses[0], reference.losses[0], 1e-5 * reference.losses[0]) << model.name;
    if (size() > 1) {
      EXPECT_GE(num_reductions(ours.program), 3) << model.name;
    }
  }
  EXPECT_EQ(zero_gradients, 4) << "one a layer of gpt-nano and vit-nano";
}

TEST_F(Equality, ConvolutionsByWinogradAreDirectOnesWithinRounding) {
  Training training =
      real({"vgg", {.name = "vgg-nano", .hidden = 48, .num_classes = 24, .widths = {32, 32, 32, 64, 64}}}, 24);
  training.learning_rate = 4096.0;
  const Trained direct = train(training, "single", 1, world, engine);
  static constexpr cpu::Numerics numerics{.winograd = true};
  ASSERT_EQ(cpu::convolutions_of(direct.program, numerics), "winograd and direct");
  training.backend = {
      .kernels = cpu::workspaces_of(numerics),
      .executor = [](const Program& program, comm::Engine& its, InputSource& inputs, std::uint64_t seed) {
        return std::make_unique<cpu::CpuExecutor>(program, its, inputs, seed, numerics);
      }};
  for (const Trained& ours :
       {train(training, "single", 1, world, engine), train(training, "ddp", size(), world, engine)}) {
    EXPECT_NE(ours.parameters, direct.parameters);
    for (const auto& [name, after] : direct.parameters) {
      EXPECT_LE(relative_difference(ours.parameters.at(name), after), 1e-5) << name;
    }
    EXPECT_NEAR(ours.losses[0], direct.losses[0], 1e-5 * direct.losses[0]);
  }
}

TEST_F(Equality, DdpParametersAfterTwentySgdSteps) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    training.steps = 20;
    // A ReLU or a maximum that flips turns rounding into a finite difference: so slow that none does.
    training.learning_rate = std::string_view(model.name) == "vgg" ? 1e-4 : 0.01;
    training.plan.optimizer.momentum = 0.5;
    training.plan.optimizer.weight_decay = 0.01;
    training.plan.optimizer.clip_norm = 1.0;
    const Trained reference = train(training, "single", 1, world, engine);
    const Trained ours = train(training, "ddp", size(), world, engine);
    for (const auto& [name, after] : reference.parameters) {
      // Biases start at zero and have moved little: what is compared is relative to the step, and rounding of a sum
      // over the batch is relative to its largest term.
      EXPECT_LE(relative_difference(ours.parameters.at(name), after), 1e-5) << model.name << " " << name;
      // Some move by 1e-5 of their size only: what they moved by must agree too, up to the rounding of the parameter.
      std::vector<float> moved(after.size());
      std::vector<float> apart(after.size());
      for (std::size_t k = 0; k < after.size(); ++k) {
        moved[k] = after[k] - reference.initial.at(name)[k];
        apart[k] = ours.parameters.at(name)[k] - after[k];
      }
      EXPECT_GT(norm(moved), 0.0) << model.name << " " << name;
      EXPECT_LE(norm(apart), 1e-3 * norm(moved) + 1e-7 * norm(after)) << model.name << " " << name;
    }
    for (std::size_t i = 0; i < reference.norms.size(); ++i) {
      EXPECT_NEAR(ours.norms[i], reference.norms[i], 1e-4 * reference.norms[i]) << model.name;
    }
  }
}

TEST_F(Equality, DdpLossWithAdam) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    training.steps = 10;
    training.learning_rate = 1e-3;
    training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1};
    const Trained reference = train(training, "single", 1, world, engine);
    const Trained ours = train(training, "ddp", size(), world, engine);
    for (std::size_t i = 0; i < reference.losses.size(); ++i) {
      EXPECT_NEAR(ours.losses[i], reference.losses[i], 1e-4 * reference.losses[i]) << model.name << " step " << i;
    }
    EXPECT_LT(ours.losses.back(), 1.5F * ours.losses.front()) << model.name;
  }
}

TEST_F(Equality, ClippingIsByTheNormOfAllGradients) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    training.learning_rate = 4096.0;
    training.plan.optimizer.clip_norm = 1e30;  // computes the norm and clips nothing
    const auto moved = [](const Trained& trained) {
      double squares = 0.0;
      for (const auto& [name, after] : trained.parameters) {
        std::vector<float> difference(after.size());
        for (std::size_t i = 0; i < after.size(); ++i) difference[i] = trained.initial.at(name)[i] - after[i];
        squares += norm(difference) * norm(difference);
      }
      return std::sqrt(squares);
    };
    const Trained free = train(training, "ddp", size(), world, engine);
    EXPECT_NEAR(free.norms[0], moved(free) / 4096.0, 1e-4 * free.norms[0]) << model.name;
    training.plan.optimizer.clip_norm = 0.25 * free.norms[0];
    const Trained clipped = train(training, "ddp", size(), world, engine);
    EXPECT_NEAR(moved(clipped) / 4096.0, 0.25 * free.norms[0], 1e-4 * free.norms[0]) << model.name;
    EXPECT_EQ(clipped.norms, free.norms) << model.name << ": reported before clipping";
  }
}

TEST_F(Equality, MicroBatchesAndOverlapChangeNothingButRounding) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24 * 3);
    training.steps = 2;
    training.learning_rate = 0.1;
    const Trained once = train(training, "ddp", size(), world, engine);
    training.plan.overlap.all_reduce = "none";
    const Trained late = train(training, "ddp", size(), world, engine);
    EXPECT_EQ(late.parameters, once.parameters) << model.name << ": overlap changes when, not what";
    if (size() > 1) {
      EXPECT_NE(late.program.body, once.program.body) << model.name;
    }
    training.plan.schedule.micro_batches = 3;
    const Trained thrice = train(training, "ddp", size(), world, engine);
    for (const auto& [name, values] : once.parameters) {
      EXPECT_LE(relative_difference(thrice.parameters.at(name), values), 1e-5) << model.name << " " << name;
    }
    training.plan.overlap.all_reduce = "backward";
    const Trained thrice_overlapped = train(training, "ddp", size(), world, engine);
    EXPECT_EQ(thrice_overlapped.parameters, thrice.parameters) << model.name;
  }
}

TEST_F(Equality, RecomputationChangesNoBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int micro_batches : {1, 3}) {
      for (const RealModel& model : real_models()) {
        Training training = real(model, 24 * micro_batches);
        training.plan.schedule.micro_batches = micro_batches;
        training.steps = 2;
        training.learning_rate = 0.1;
        training.plan.dtypes = {dtype, dtype};
        const Trained kept = train(training, "ddp", size(), world, engine);
        training.plan.recompute = Recompute::block;
        const Trained again = train(training, "ddp", size(), world, engine);
        EXPECT_EQ(again.parameters, kept.parameters) << model.name;
        EXPECT_EQ(again.losses, kept.losses) << model.name;
        // A hidden layer of the mlp keeps nothing but its output, over which the ReLU is written: nothing to drop.
        const bool recomputes =
            std::ranges::any_of(again.program.body, [](const Instruction& in) { return in.phase == Phase::recompute; });
        EXPECT_EQ(recomputes, std::string_view(model.name) != "mlp") << model.name;
      }
    }
  }
}

TEST_F(Equality, Bf16StaysNearF32) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    training.steps = 5;
    training.learning_rate = 0.02;
    const Trained full = train(training, "ddp", size(), world, engine);
    for (const DType gradient : {DType::bf16, DType::f32}) {
      training.plan.dtypes = {DType::bf16, gradient};
      const Trained half = train(training, "ddp", size(), world, engine);
      for (std::size_t i = 0; i < full.losses.size(); ++i) {
        EXPECT_NEAR(half.losses[i], full.losses[i], 0.03 * full.losses[i]) << model.name << " step " << i;
      }
    }
  }
}

TEST_F(Equality, ABatchThatMicroBatchesDoNotDivideIsRefusedWithNumbers) {
  const std::int64_t batch = 24 * size() + 1;
  Training training{.graph = build_model({.name = "mlp-tiny"}), .plan = sgd(batch)};
  training.plan.schedule.micro_batches = 2;
  try {
    train(training, "ddp", size(), world, engine);
    FAIL() << "must be refused";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(batch)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(std::to_string(size())), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::test_equality
