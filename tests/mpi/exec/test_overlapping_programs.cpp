/// @file
/// Small Programs whose steps overlap, on two ranks of the CPU: the values that a step after the other gives, whichever
/// step is the last and however often the ranks pause.

#include <gtest/gtest.h>

#include <vector>

#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/cpu/cpu_executor.hpp"
#include "mpi/exec/training.hpp"
#include "support/overlapping_programs.hpp"

namespace strata {
namespace {

/// Steps [begin, end), as many under way at once as there may be; nothing is under way afterwards.
void run_steps(Executor& executor, const Program& program, int begin, int end) {
  int completed = begin;
  for (int step = begin; step < end;) {
    std::vector<StepContext> steps;
    do {
      steps.push_back({.step = step, .learning_rate = test::overlap_learning_rate(step)});
      ++step;
    } while (step < end && step % program.steps_per_body != 0);
    executor.submit(steps);
    while (completed < step && repetition_of(program, completed) + depth(program) <= repetition_of(program, step - 1)) {
      executor.complete(completed++);
    }
  }
  executor.drain();
  while (completed < end) executor.complete(completed++);
}

TEST(OverlappingProgramsOnTheCpu, ComputeWhatOneStepAfterTheOtherDoes) {
  const comm::World world;
  comm::Engine engine(world, {});
  for (const test::OverlapCase& one : test::overlap_cases()) {
    if (!one.refusal.empty()) continue;
    const Program program = one.program(world.rank());
    for (int num_steps = 1; num_steps <= 5; ++num_steps) {
      for (int pause = 0; pause < num_steps; ++pause) {
        CountedInputs inputs(2, 2);
        cpu::CpuExecutor executor(program, engine, inputs, 1);
        executor.initialize();
        run_steps(executor, program, 0, pause);
        run_steps(executor, program, pause, num_steps);
        for (const auto& [name, value] : one.values(world.rank(), num_steps, pause)) {
          const auto buffer = std::ranges::find(program.buffers, name, &Buffer::name);
          const std::span<const float> found = executor.read(static_cast<int>(buffer - program.buffers.begin()));
          EXPECT_EQ(std::vector<float>(found.begin(), found.end()), std::vector<float>(test::overlap_elements, value))
              << one.name << ", " << num_steps << " steps with a pause after " << pause << ": " << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata
