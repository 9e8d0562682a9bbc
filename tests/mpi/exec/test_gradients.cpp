/// @file
/// The gradient of a whole step, tensor by tensor, is the slope of its loss: central differences through the Program.
/// Modes that share a lowering agree with each other even where it is wrong; this asks the loss itself.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mpi/exec/training.hpp"

namespace strata {
namespace {

struct Case {
  const char* name;
  ModelOptions options;
  double classes;  ///< of the initial loss, which is near its logarithm; 0: not near
};

class Gradients : public testing::TestWithParam<Case> {
 protected:
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

TEST_P(Gradients, AreTheSlopeOfTheLoss) {
  Training training{.graph = build_model(GetParam().options), .plan = {}};
  training.plan.global_batch = 12;
  training.plan.schedule.micro_batches = 2;
  training.plan.optimizer = {.kind = "sgd", .momentum = 0.0};
  training.vocabulary = 101;
  training.learning_rate = 4096.0;  // outweighs the weight, so that the difference is the gradient to full precision
  const Trained step = train(training, "single", 1, world, engine);
  if (GetParam().classes > 0.0) {
    EXPECT_NEAR(step.losses[0], std::log(GetParam().classes), 0.1 * std::log(GetParam().classes));
  }
  int compared = 0;
  for (const auto& [name, after] : step.parameters) {
    std::vector<float> gradient(after.size());
    for (std::size_t i = 0; i < after.size(); ++i) gradient[i] = (step.initial.at(name)[i] - after[i]) / 4096.0F;
    const double length = norm(gradient);
    ASSERT_GT(length, 0.0) << name;
    // Far enough for the loss to change by much more than its rounding, near enough to be straight.
    const double distance = std::min(4e-3 / length, 0.2);
    const auto loss_at = [&](double sign) {
      Training moved = training;
      moved.learning_rate = 0.0;
      moved.initial = [&](const std::string& parameter, std::span<float> values) {
        if (parameter != name) return;
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] += static_cast<float>(sign * distance * static_cast<double>(gradient[i]) / length);
        }
      };
      return static_cast<double>(train(moved, "single", 1, world, engine).losses[0]);
    };
    const double slope = (loss_at(1.0) - loss_at(-1.0)) / (2.0 * distance);
    const double rounding = 1e-6 / distance;
    EXPECT_NEAR(slope, length, 0.02 * length + rounding) << name;
    compared += rounding < 0.1 * length ? 1 : 0;
  }
  EXPECT_GE(compared, std::ssize(step.parameters) - 1) << "slopes above the rounding of the loss";
}

INSTANTIATE_TEST_SUITE_P(
    , Gradients,
    testing::Values(Case{"gpt", {.name = "gpt-nano", .vocabulary = 101, .sequence_length = 33}, 101},
                    Case{"llama", {.name = "llama-nano", .vocabulary = 101, .sequence_length = 17}, 101},
                    Case{"vgg", {.name = "vgg-nano"}, 0}, Case{"mlp", {.name = "mlp-tiny"}, 0}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace strata
