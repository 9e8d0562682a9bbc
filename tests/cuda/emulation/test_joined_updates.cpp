/// @file
/// Neighbouring optimizer updates as one launch: the values of one launch each, and fewer launches.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cuda/emulation/emulation.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "mpi/exec/networks.hpp"

namespace strata {
namespace {

struct CountedRun {
  Trained trained;
  std::int64_t num_launches = 0;
};

class JoinedUpdates : public testing::Test {
 protected:
  /// Three steps without a graph. Instructions whose time is asked for are launched one by one.
  CountedRun run(const std::string& mode, const OptimizerPlan& optimizer, bool timing) {
    Training training = exact(1, {16, 24, 16, 8});
    training.steps = 3;
    training.plan.optimizer = optimizer;
    training.backend = {
        .kernels = {cuda::workspaces_of({}), cuda::fusions},
        .executor = [&](const Program& program, comm::Engine& of_run, InputSource& inputs, std::uint64_t seed) {
          return std::make_unique<cuda::CudaExecutor>(
              program, of_run, inputs, seed, cuda::CudaOptions{.timing = timing, .graphs = cuda::GraphUse::off});
        }};
    const std::int64_t before = emulation::num_launches();
    CountedRun result{.trained = train(training, mode, world.size(), world, engine)};
    result.num_launches = emulation::num_launches() - before;
    return result;
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

TEST_F(JoinedUpdates, ComputeWhatOneLaunchEachDoes) {
  const std::string mode = world.size() == 1 ? "single" : "ddp";
  for (const OptimizerPlan& optimizer :
       {OptimizerPlan{.kind = "adamw", .weight_decay = 0.1}, OptimizerPlan{.kind = "sgd", .momentum = 0.0},
        OptimizerPlan{.kind = "sgd", .momentum = 0.9}}) {
    const CountedRun one_by_one = run(mode, optimizer, true);
    const CountedRun joined = run(mode, optimizer, false);
    EXPECT_EQ(joined.trained.losses, one_by_one.trained.losses) << optimizer.kind;
    EXPECT_EQ(joined.trained.parameters, one_by_one.trained.parameters) << optimizer.kind;
    if (world.size() == 1) {
      // Three layers' weights, which decay, and biases, which do not: one launch a step updates all.
      EXPECT_EQ(one_by_one.num_launches - joined.num_launches, 3 * (6 - 1)) << optimizer.kind;
    }
  }
}

}  // namespace
}  // namespace strata
