/// @file
/// Programs whose convolutions, pools and ReLUs, or products and GELUs, sums and norms, are fused train on a GPU what
/// the plain ones do there, in fewer launches.

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

class FusedPrograms : public testing::Test {
 protected:
  struct CountedRun {
    Trained trained;
    std::int64_t num_launches = 0;
  };
  CountedRun run(const ModelOptions& model, DType dtype, const Fusions& fusions) {
    Training training = real({"", model}, 4);
    training.steps = 2;
    training.learning_rate = 1e-3;
    training.plan.dtypes = {dtype, DType::f32};
    training.plan.schedule.micro_batches = 2 / world.size();
    training.backend = {
        .kernels = {cuda::workspaces_of({}), fusions},
        .executor = [](const Program& program, comm::Engine& of_run, InputSource& inputs, std::uint64_t seed) {
          return std::make_unique<cuda::CudaExecutor>(
              program, of_run, inputs, seed, cuda::CudaOptions{.timing = false, .graphs = cuda::GraphUse::off});
        }};
    const std::int64_t before = emulation::num_launches();
    CountedRun result{.trained = train(training, world.size() == 1 ? "single" : "ddp", world.size(), world, engine)};
    result.num_launches = emulation::num_launches() - before;
    return result;
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

TEST_F(FusedPrograms, TrainWhatPlainOnesDo) {
  const ModelOptions vgg = {.name = "vgg-nano"};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const CountedRun plain = run(vgg, dtype, {});
    const CountedRun fused = run(vgg, dtype, cuda::fusions);
    const std::string which(to_string(dtype));
    // In bf16 a convolution's bias is added before the product is rounded.
    const double rounding = dtype == DType::f32 ? 0.0 : 1e-2;
    EXPECT_NEAR(fused.trained.losses.front(), plain.trained.losses.front(), rounding) << which;
    EXPECT_NEAR(fused.trained.losses.back(), plain.trained.losses.back(), rounding + 1e-6) << which;
    // Biases begin at 0, and in bf16 have moved by little more than what rounding lets through ReLUs.
    for (const auto& [name, values] : plain.trained.parameters) {
      if (dtype == DType::bf16 && name.ends_with("bias")) continue;
      EXPECT_LE(relative_difference(fused.trained.parameters.at(name), values), dtype == DType::f32 ? 1e-6 : 1e-3)
          << which << " " << name;
    }
    // Of eight convolutions and five pools: ReLUs of their own in forward, in f32 bias and ReLU in one launch; those
    // before pools in backward. Column sums stay two launches each, of which the first is the gradient's.
    const std::int64_t fewest = (8 + 5 + 8) * 2 * (2 / world.size());
    EXPECT_GE(plain.num_launches - fused.num_launches, fewest) << which;
  }
}

TEST_F(FusedPrograms, TrainTransformers) {
  const ModelOptions gpt = {.name = "gpt-nano", .vocabulary = 101, .sequence_length = 9};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const CountedRun plain = run(gpt, dtype, {});
    const CountedRun fused = run(gpt, dtype, cuda::fusions);
    const std::string which(to_string(dtype));
    // In bf16 what GELU is applied to, and the gradient of its output, are not rounded.
    EXPECT_NEAR(fused.trained.losses.front(), plain.trained.losses.front(), dtype == DType::f32 ? 1e-6 : 5e-3) << which;
    EXPECT_NEAR(fused.trained.losses.back(), plain.trained.losses.back(), dtype == DType::f32 ? 1e-5 : 5e-3) << which;
    for (const auto& [name, values] : plain.trained.parameters) {
      if (dtype == DType::bf16 && name.ends_with("bias")) continue;  // begin at 0, as above
      EXPECT_LE(relative_difference(fused.trained.parameters.at(name), values), dtype == DType::f32 ? 1e-5 : 1e-3)
          << which << " " << name;
    }
    // Of two layers in two steps: GELU, in forward and backward, and both sums.
    EXPECT_EQ(plain.num_launches - fused.num_launches, 2 * 2 * (2 + 2) * (2 / world.size())) << which;
  }
}

}  // namespace
}  // namespace strata
