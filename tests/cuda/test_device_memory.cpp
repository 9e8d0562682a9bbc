/// @file
/// What a run takes of a device's memory, by the device's own account, against its Program. The emulation's libraries
/// take none of it, so that both are equal but for the numbers of a step.

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "exec/cuda/cuda_executor.hpp"
#include "exec/cuda/gpu_monitor.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "mpi/exec/networks.hpp"

namespace strata {
namespace {

TEST(DeviceMemory, IsTheProgramsArenaWhileItRuns) {
  const comm::World world;
  comm::Engine engine(world, {});
  const auto models = real_models();
  const auto is_mlp = [](const RealModel& model) { return model.name == std::string_view("mlp"); };
  Training training = real(*std::ranges::find_if(models, is_mlp), 24);
  training.backend = {
      .kernels = {cuda::workspaces_of({}), cuda::fusions},
      .executor = [](const Program& program, comm::Engine& of_run, InputSource& inputs, std::uint64_t seed) {
        return std::make_unique<cuda::CudaExecutor>(program, of_run, inputs, seed, cuda::CudaOptions{});
      }};
  cuda::GpuMonitor monitor;
  double taken_bytes = 0.0;
  training.after = [&](const Program&, Executor&) { taken_bytes = monitor.read().device_memory_taken_bytes; };
  const Trained trained = train(training, "single", 1, world, engine);
  EXPECT_GT(trained.program.arena_bytes, 0);
  const Program& program = trained.program;
  const std::size_t num_instructions = program.prologue.size() + program.body.size();
  EXPECT_EQ(taken_bytes,
            static_cast<double>(program.arena_bytes) +
                static_cast<double>(cuda::StepValues::slot_bytes * (num_instructions + program.streams.size())));
  EXPECT_EQ(monitor.read().device_memory_taken_bytes, 0.0);
}

}  // namespace
}  // namespace strata
