/// @file
/// Small Programs whose steps overlap, on two ranks of the CPU.

#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/cpu/cpu_executor.hpp"
#include "support/run_overlapping_programs.hpp"

namespace strata::test_overlapping_programs {
namespace {

TEST(OverlappingProgramsOnTheCpu, ComputeWhatOneStepAfterTheOtherDoes) {
  const comm::World world;
  comm::Engine engine(world, {});
  test::expect_what_one_step_after_the_other_computes(world.rank(), [&](const Program& program, InputSource& inputs) {
    return std::make_unique<cpu::CpuExecutor>(program, engine, inputs, 1);
  });
}

}  // namespace
}  // namespace strata::test_overlapping_programs
