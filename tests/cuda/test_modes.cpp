/// @file
/// Every mode trains on GPUs what it trains on CPUs: same plan, same ranks, same initial values, dropped elements and
/// data. Ranks share the machine's GPUs in turn; their collectives go through the host.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/cuda/device_info.hpp"
#include "exec/device/workspace.hpp"
#include "mpi/exec/networks.hpp"

namespace strata {
namespace {

Backend gpu() {
  return {.workspace_bytes = cuda::workspace_bytes,
          .executor = [](const Program& program, comm::Engine& engine, InputSource& inputs, std::uint64_t seed) {
            return std::make_unique<cuda::CudaExecutor>(program, engine, inputs, seed,
                                                        cuda::CudaOptions{.numerics = {.deterministic = true}});
          }};
}

class Modes : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::num_devices() == 0) GTEST_SKIP() << "no GPU";
    cuda::check(cudaSetDevice(world.local_rank() % cuda::num_devices()), "cudaSetDevice");
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};

  /// The plan of @p mode for these ranks, which two micro-batches may suit where one does not; none where it refuses.
  std::optional<Plan> plan_for(Training& training, const std::string& mode) const {
    for (const int micro_batches : {1, 2}) {
      training.plan.schedule.micro_batches = micro_batches;
      try {
        Plan plan = plan_of(training, mode, world.size());
        lower(plan, training.graph, world.rank(), cpu::workspace_bytes);
        return plan;
      } catch (const UserError&) {
      } catch (const Unsupported&) {
      }
    }
    return std::nullopt;
  }
};

TEST_F(Modes, TrainWhatTheyTrainOnTheCpu) {
  int num_trained = 0;
  for (const RealModel& model : real_models()) {
    for (const Planner* planner : all_planners()) {
      Training training = real(model, 24);
      training.steps = 3;
      training.learning_rate = 1e-3;
      training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 1.0};
      const std::optional<Plan> plan = plan_for(training, std::string(planner->name()));
      if (!plan) continue;
      const Trained cpu = train_plan(training, *plan, world, engine);
      training.backend = gpu();
      const Trained ours = train_plan(training, *plan, world, engine);
      const std::string which = std::string(planner->name()) + " of " + model.name;
      ++num_trained;
      EXPECT_EQ(ours.initial.size(), cpu.initial.size()) << which;
      for (const auto& [name, values] : cpu.initial) EXPECT_EQ(ours.initial.at(name), values) << which << " " << name;
      for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
        EXPECT_NEAR(ours.losses[i], cpu.losses[i], 1e-4 * std::abs(cpu.losses[i])) << which << " step " << i;
      }
      for (const auto& [name, values] : cpu.parameters) {
        // Adam divides by what may be rounding alone: a step is as long as the rate whatever its gradient.
        EXPECT_LE(relative_difference(ours.parameters.at(name), values), 2e-2) << which << " " << name;
      }
      EXPECT_EQ(ours.last_step.bytes_sent, cpu.last_step.bytes_sent) << which;
      EXPECT_GT(ours.last_step.compute_seconds, 0.0) << which;
    }
  }
  EXPECT_GE(num_trained, 4) << "at least one mode a model";
}

TEST_F(Modes, GradientsAreTheCpus) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    // So large a rate that the gradient outweighs the weight: what is compared is the gradient.
    training.learning_rate = 4096.0;
    const Plan plan = plan_of(training, world.size() == 1 ? "single" : "ddp", world.size());
    const Trained cpu = train_plan(training, plan, world, engine);
    training.backend = gpu();
    const Trained ours = train_plan(training, plan, world, engine);
    for (const auto& [name, values] : cpu.parameters) {
      EXPECT_LE(relative_difference(ours.parameters.at(name), values), 1e-4) << model.name << " " << name;
    }
  }
}

TEST_F(Modes, DeterministicStepsAreEqualBitForBit) {
  Training training = real(real_models().front(), 24);
  training.backend = gpu();
  training.steps = 3;
  const Plan plan = plan_of(training, world.size() == 1 ? "single" : "ddp", world.size());
  const Trained first = train_plan(training, plan, world, engine);
  const Trained second = train_plan(training, plan, world, engine);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.parameters, second.parameters);
}

TEST_F(Modes, Bf16FollowsTheCpu) {
  for (const RealModel& model : real_models()) {
    Training training = real(model, 24);
    training.plan.dtypes = {DType::bf16, DType::bf16};
    training.steps = 3;
    training.learning_rate = 1e-2;
    const Plan plan = plan_of(training, world.size() == 1 ? "single" : "ddp", world.size());
    const Trained cpu = train_plan(training, plan, world, engine);
    training.backend = gpu();
    const Trained ours = train_plan(training, plan, world, engine);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(ours.losses[i], cpu.losses[i], 2e-2 * std::abs(cpu.losses[i])) << model.name << " step " << i;
    }
  }
}

}  // namespace
}  // namespace strata
