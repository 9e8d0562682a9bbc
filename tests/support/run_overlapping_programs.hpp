#pragma once

/// @file
/// Runs the small Programs whose steps overlap on an executor of two ranks: the values that a step after the other
/// gives, whichever step is the last and however often the ranks pause.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/executor.hpp"
#include "support/overlapping_programs.hpp"

namespace strata::test {

/// The Programs load nothing.
struct NoInputs final : InputSource {
  void load_tokens(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>,
                   std::span<std::int32_t>) override {}
  void load_images(std::int64_t, std::int64_t, std::int64_t, std::span<float>, std::span<std::int32_t>) override {}
  void load_targets(std::int64_t, std::int64_t, std::int64_t, std::span<std::int32_t>) override {}
};

/// Steps [begin, end), as many under way at once as there may be; nothing is under way afterwards.
inline void run_overlapping_steps(Executor& executor, const Program& program, int begin, int end) {
  int completed = begin;
  for (int step = begin; step < end;) {
    std::vector<StepContext> steps;
    do {
      steps.push_back({.step = step, .learning_rate = overlap_learning_rate(step)});
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

/// Of a Program that is verified already: executors trust what they are given.
using MakeExecutor = std::function<std::unique_ptr<Executor>(const Program&, InputSource&)>;

inline void expect_what_one_step_after_the_other_computes(int rank, const MakeExecutor& make_executor) {
  for (const OverlapCase& one : overlap_cases()) {
    if (!one.refusal.empty()) continue;
    const Program program = one.program(rank);
    for (int num_steps = 1; num_steps <= 5; ++num_steps) {
      for (int pause = 0; pause < num_steps; ++pause) {
        NoInputs inputs;
        const std::unique_ptr<Executor> executor = make_executor(program, inputs);
        executor->initialize();
        run_overlapping_steps(*executor, program, 0, pause);
        run_overlapping_steps(*executor, program, pause, num_steps);
        for (const auto& [name, value] : one.values(rank, num_steps, pause)) {
          const auto buffer = std::ranges::find(program.buffers, name, &Buffer::name);
          const std::span<const float> found = executor->read(static_cast<int>(buffer - program.buffers.begin()));
          EXPECT_EQ(std::vector<float>(found.begin(), found.end()), std::vector<float>(overlap_elements, value))
              << one.name << ", " << num_steps << " steps with a pause after " << pause << ": " << name;
        }
      }
    }
  }
}

}  // namespace strata::test
