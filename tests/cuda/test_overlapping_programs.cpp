/// @file
/// Small Programs whose steps overlap, on two ranks with an emulated GPU each: the values that CPUs compute.
/// Collectives go through the host, or, with the variable STRATA_TRANSPORT=nccl, by NCCL.

#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/cuda/cuda_executor.hpp"
#include "support/run_overlapping_programs.hpp"

namespace strata {
namespace {

class OverlappingProgramsOnGpus : public testing::Test {
 protected:
  void SetUp() override {
    const char* const transport = std::getenv("STRATA_TRANSPORT");
    if (transport != nullptr && std::string(transport) == "nccl") nccl.world = &world;
  }
  comm::World world;
  comm::Engine engine{world, {.watchdog_seconds = 60}};
  cuda::NcclOptions nccl;
};

TEST_F(OverlappingProgramsOnGpus, ComputeWhatOneStepAfterTheOtherDoes) {
  test::expect_what_one_step_after_the_other_computes(world.rank(), [&](const Program& program, InputSource& inputs) {
    return std::make_unique<cuda::CudaExecutor>(program, engine, inputs, 1, cuda::CudaOptions{.nccl = nccl});
  });
}

/// An executable graph cannot be launched over itself.
TEST_F(OverlappingProgramsOnGpus, HaveNoGraph) {
  for (const test::OverlapCase& one : test::overlap_cases()) {
    if (!one.refusal.empty()) continue;
    test::NoInputs inputs;
    EXPECT_THROW(
        cuda::CudaExecutor(one.program(world.rank()), engine, inputs, 1, {.graphs = cuda::GraphUse::on, .nccl = nccl}),
        Unsupported)
        << one.name;
  }
}

}  // namespace
}  // namespace strata
