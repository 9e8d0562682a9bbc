/// @file
/// Every mode trains what its reference trains: exact inputs compared with ==, real models within rounding.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "mpi/exec/training.hpp"

namespace strata {
namespace {

class Equality : public testing::Test {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  int size() const { return world.size(); }
};

Plan sgd(std::int64_t global_batch) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.optimizer = {.kind = "sgd", .momentum = 0.0};
  return plan;
}

/// Initial weights with which a ReLU network's step 1 is exact although its loss is a softmax: hidden units come in
/// pairs with equal weights, the head gives the two of a pair opposite weights. So all logits are 0, the softmax is
/// 1 / classes (a power of two), and yet gradients reach every layer.
void pairs(const std::string& parameter, std::span<float> values, const std::vector<std::int64_t>& widths) {
  const bool is_bias = parameter.ends_with("bias");
  const bool is_head = parameter.starts_with("head");
  const RandomStream random{.seed = 5, .stream = parameter.size() * 100 + static_cast<std::uint64_t>(parameter[6])};
  std::int64_t in = 0;
  for (std::size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    if (static_cast<std::int64_t>(values.size()) == widths[layer] * widths[layer + 1]) in = widths[layer];
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = is_bias ? i : i / static_cast<std::size_t>(in);
    const std::size_t column = is_bias ? 0 : i % static_cast<std::size_t>(in);
    // Equal for the two rows of a pair in a hidden layer, opposite for the two columns of a pair in the head.
    const std::size_t key = is_head ? row * 1000 + column / 2 : row / 2 * 1000 + column;
    float value = std::floor(3.0F * random.uniform(key)) - 1.0F;
    if (is_head && column % 2 == 1) value = -value;
    if (is_head && is_bias) value = 0.0F;
    values[i] = 0.5F * value;
  }
}

Training exact(int micro_batches) {
  const std::vector<std::int64_t> widths = {7, 12, 4};
  Training training{.graph = build_model({.name = "mlp", .widths = widths}), .plan = sgd(8 * micro_batches)};
  training.plan.schedule.micro_batches = micro_batches;
  training.classes = 4;
  training.dyadic = true;
  training.initial = [widths](const std::string& parameter, std::span<float> values) {
    pairs(parameter, values, widths);
  };
  return training;
}

TEST_F(Equality, DdpIsExactOnExactInputs) {
  if (8 % size() != 0) GTEST_SKIP() << "8 samples over " << size() << " ranks";
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

struct RealModel {
  const char* name;
  ModelOptions options;
  std::vector<std::string> zero_gradient;  ///< exact gradient is zero: only rounding is left to compare
};

std::vector<RealModel> real_models() {
  return {
      // Softmax over keys does not change when all scores of a query shift: the bias of the keys has no gradient. It is
      // one third of the fused qkv bias, whose norm the other two thirds dominate, so nothing needs to be left out.
      {"gpt", {.name = "gpt-nano", .vocabulary = 101, .sequence_length = 33, .dropout = 0.1}, {}},
      {"llama", {.name = "llama-nano", .vocabulary = 101, .sequence_length = 17}, {}},
      {"vgg", {.name = "vgg-nano", .dropout = 0.25}, {}},
      {"mlp", {.name = "mlp-tiny"}, {}},
  };
}

TEST_F(Equality, DdpGradientsOfRealModels) {
  for (const RealModel& model : real_models()) {
    Training training{.graph = build_model(model.options), .plan = sgd(24)};
    training.vocabulary = 101;
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
    }
    EXPECT_NEAR(ours.losses[0], reference.losses[0], 1e-5 * reference.losses[0]) << model.name;
  }
}

TEST_F(Equality, DdpParametersAfterTwentySgdSteps) {
  for (const RealModel& model : real_models()) {
    Training training{.graph = build_model(model.options), .plan = sgd(24)};
    training.vocabulary = 101;
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
    }
    for (std::size_t i = 0; i < reference.norms.size(); ++i) {
      EXPECT_NEAR(ours.norms[i], reference.norms[i], 1e-4 * reference.norms[i]) << model.name;
    }
  }
}

TEST_F(Equality, DdpLossWithAdam) {
  for (const RealModel& model : real_models()) {
    Training training{.graph = build_model(model.options), .plan = sgd(24)};
    training.vocabulary = 101;
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

TEST_F(Equality, MicroBatchesAndOverlapChangeNothingButRounding) {
  for (const RealModel& model : real_models()) {
    Training training{.graph = build_model(model.options), .plan = sgd(24 * 2)};
    training.vocabulary = 101;
    training.steps = 2;
    training.learning_rate = 0.1;
    const Trained once = train(training, "ddp", size(), world, engine);
    training.plan.overlap.all_reduce = "none";
    const Trained late = train(training, "ddp", size(), world, engine);
    EXPECT_EQ(late.parameters, once.parameters) << model.name << ": overlap changes when, not what";
    training.plan.schedule.micro_batches = 2;
    const Trained twice = train(training, "ddp", size(), world, engine);
    for (const auto& [name, values] : once.parameters) {
      EXPECT_LE(relative_difference(twice.parameters.at(name), values), 1e-5) << model.name << " " << name;
    }
  }
}

TEST_F(Equality, RecomputationChangesNoBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const RealModel& model : real_models()) {
      Training training{.graph = build_model(model.options), .plan = sgd(24)};
      training.vocabulary = 101;
      training.steps = 2;
      training.learning_rate = 0.1;
      training.plan.dtypes = {dtype, dtype};
      const Trained kept = train(training, "ddp", size(), world, engine);
      training.plan.recompute = Recompute::block;
      const Trained again = train(training, "ddp", size(), world, engine);
      EXPECT_EQ(again.parameters, kept.parameters) << model.name;
      EXPECT_EQ(again.losses, kept.losses) << model.name;
    }
  }
}

TEST_F(Equality, Bf16StaysNearF32) {
  for (const RealModel& model : real_models()) {
    Training training{.graph = build_model(model.options), .plan = sgd(24)};
    training.vocabulary = 101;
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

TEST_F(Equality, ABatchThatRanksDoNotDivideIsRefusedWithNumbers) {
  Training training{.graph = build_model({.name = "mlp-tiny"}), .plan = sgd(24 * size() + 1)};
  if (size() == 1) GTEST_SKIP() << "one rank divides everything";
  try {
    train(training, "ddp", size(), world, engine);
    FAIL() << "must be refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(24 * size() + 1)), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(std::to_string(size())), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata
