/// @file
/// Products whose kernels are timed before the first step: which one computes them, that all compute the same, and what
/// is left of the timing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emulation/products.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "exec/device/fusions.hpp"
#include "exec/device/workspace.hpp"
#include "mpi/exec/networks.hpp"

namespace strata {
namespace {

using emulation::ProductKernel;

class TimedProducts : public testing::Test {
 protected:
  void TearDown() override { emulation::name_product_kernels({{}}); }

  struct CountedRun {
    Trained trained;
    std::vector<std::int64_t> num_products;  ///< by kernel, those that were timed too
    TouchedMemory touched_at_first;
  };
  CountedRun run(std::vector<ProductKernel> kernels, bool timed, DType dtype = DType::bf16) {
    emulation::name_product_kernels(std::move(kernels));
    Training training = real({"", {.name = "gpt-nano", .layers = 1, .vocabulary = 101, .sequence_length = 8}}, 4);
    training.steps = 2;
    training.plan.dtypes = {dtype, DType::f32};
    CountedRun result;
    training.backend = {
        .kernels = {cuda::workspaces_of({}), cuda::fusions},
        .executor = [&](const Program& program, comm::Engine& of_run, InputSource& inputs, std::uint64_t seed) {
          auto executor = std::make_unique<cuda::CudaExecutor>(
              program, of_run, inputs, seed, cuda::CudaOptions{.numerics = {.time_products = timed}, .timing = false});
          executor->agree_on_products(world);
          result.touched_at_first = executor->touched_memory();
          return executor;
        }};
    result.trained = train(training, world.size() == 1 ? "single" : "ddp", world.size(), world, engine);
    result.num_products = emulation::num_products();
    return result;
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
};

TEST_F(TimedProducts, AreComputedByTheFastestThatIsNotRefused) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const CountedRun first = run({{.milliseconds = 3}, {.milliseconds = 1}}, false, dtype);
    EXPECT_EQ(first.num_products.at(1), 0) << "nothing is timed that need not be";
    const CountedRun fastest =
        run({{.milliseconds = 30}, {.refuses = true}, {.milliseconds = 10}, {.milliseconds = 20}}, true, dtype);
    const std::vector<std::int64_t>& n = fastest.num_products;
    EXPECT_GT(n[0], 0) << "timed";
    EXPECT_EQ(n[1], 0) << "refused";
    EXPECT_EQ(n[2] - n[0], first.num_products[0]) << "all products of all steps";
    EXPECT_EQ(n[3], n[0]) << "timed as often";
    EXPECT_EQ(fastest.trained.losses, first.trained.losses);
    EXPECT_EQ(fastest.trained.parameters, first.trained.parameters);
  }
}

TEST_F(TimedProducts, LeaveNothingInTheArena) {
  const CountedRun timed = run({{.milliseconds = 2}, {.milliseconds = 1}}, true);
  EXPECT_EQ(timed.touched_at_first.own_bytes, 0);
}

TEST_F(TimedProducts, OfWhichAllKernelsAreRefusedAreRefused) {
  try {
    run({{.refuses = true}, {.refuses = true}}, true);
    FAIL() << "computed by nobody";
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("cuBLASLt has no kernel for a product of "));
  }
}

/// Replicas compute the same, each on its own clock.
TEST_F(TimedProducts, AreThoseOfTheLowestRankEverywhere) {
  if (world.size() == 1) return;
  const bool is_first = world.rank() == 0;
  const float second = is_first ? 10 : 20;
  const float third = is_first ? 20 : 10;
  std::vector<std::int64_t> n = run({{30}, {second}, {third}}, true).num_products;
  EXPECT_GT(n[1], n[0]);
  EXPECT_EQ(n[2], n[0]);
  n = run({{30}, {.milliseconds = second, .refuses = !is_first}, {third}}, true).num_products;
  EXPECT_GT(n[is_first ? 1 : 2], n[0]) << "what is refused here is not taken from there";
}

}  // namespace
}  // namespace strata
