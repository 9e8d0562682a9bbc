/// @file
/// Graphs that a device does not record after all: one rank's refusal is all ranks', and the step goes on without.

#include <gmock/gmock.h>

#include <memory>

#include "base/error.hpp"
#include "cuda/emulation/streams.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "mpi/exec/networks.hpp"

namespace strata {
namespace {

class RefusedGraphs : public testing::Test {
 protected:
  /// Four steps; recordings are refused on rank @p refusing alone, on none where it is negative.
  Trained trained(cuda::GraphUse graphs, int refusing) {
    emulation::refuse_recordings(world.rank() == refusing);
    Training training = exact(1, {16, 24, 16, 8});
    training.steps = 4;
    training.plan.optimizer = {.kind = "adamw", .weight_decay = 0.1, .clip_norm = 1.0};
    const comm::World* const nccl = world.size() > 1 ? &world : nullptr;
    training.backend = {
        .kernels = {cuda::workspaces_of({}), cuda::fusions},
        .executor = [&](const Program& program, comm::Engine& of_run, InputSource& inputs, std::uint64_t seed) {
          return std::make_unique<cuda::CudaExecutor>(program, of_run, inputs, seed,
                                                      cuda::CudaOptions{.graphs = graphs, .nccl = {.world = nccl}});
        }};
    const Trained result = train(training, world.size() == 1 ? "single" : "ddp", world.size(), world, engine);
    emulation::refuse_recordings(false);
    return result;
  }
  /// What @p action writes to standard error on this rank.
  template <typename Action>
  static std::string said_by(const Action& action) {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

TEST_F(RefusedGraphs, AreWarnedOfAndDoneWithout) {
  const int last = world.size() - 1;
  const Trained expected = trained(cuda::GraphUse::off, -1);
  Trained ours;
  const std::string said = said_by([&] { ours = trained(cuda::GraphUse::automatic, last); });
  EXPECT_EQ(ours.losses, expected.losses);
  EXPECT_EQ(ours.parameters, expected.parameters);
  if (world.rank() == 0) {
    EXPECT_THAT(said, testing::HasSubstr("strata: warning: cuda.graphs = \"auto\": the step cannot be recorded and "
                                         "goes on without a graph: rank " +
                                         std::to_string(last) + ": "));
    EXPECT_THAT(said, testing::HasSubstr("cudaStreamEndCapture"));
    EXPECT_EQ(said.find("warning"), said.rfind("warning")) << "once a run: " << said;
  } else {
    EXPECT_EQ(said, "");
  }
}

TEST_F(RefusedGraphs, AreNotSpokenOfWhereRecordingSucceeds) {
  EXPECT_EQ(said_by([&] { trained(cuda::GraphUse::automatic, -1); }), "");
}

TEST_F(RefusedGraphs, AreAnErrorWhereGraphsAreAskedFor) {
  if (world.size() > 1) GTEST_SKIP() << "the other ranks would wait for the one that gave up";
  EXPECT_THROW(trained(cuda::GraphUse::on, 0), InternalError);
  emulation::refuse_recordings(false);
}

}  // namespace
}  // namespace strata
