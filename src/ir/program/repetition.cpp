#include "ir/program/repetition.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace strata {

int depth(const Program& program) {
  int most = 0;
  for (const Instruction& in : program.body) most = std::max(most, repetitions_late(program, in));
  return most;
}

int largest_lag(const Program& program) {
  int largest = 0;
  for (const Instruction& in : program.body) {
    for (const Wait& wait : in.waits) largest = std::max(largest, wait.lag);
  }
  return largest;
}

bool is_repeated_alone(const Program& program) { return program.join && depth(program) == 0; }

bool touches_neighbours_alone(const Program& program) { return program.steps_per_body == 1 && depth(program) <= 1; }

std::int64_t steps_beside(const Program& program) {
  if (is_repeated_alone(program)) return 0;
  return std::int64_t{depth(program) + largest_lag(program) + 1} * program.steps_per_body;
}

namespace {

/// How many steps older than another one is that has begun before it in a body.
int overlapping_steps(const Program& program) {
  int most = 0, newest = 0;
  for (const Instruction& in : program.body) {
    newest = std::max(newest, in.step);
    most = std::max(most, newest - in.step);
  }
  return most;
}

}  // namespace

FillAndDrain fill_and_drain(const Program& program) {
  if (is_repeated_alone(program)) return {};
  const int beside = overlapping_steps(program);
  int waited_for = 0;
  for (const Instruction& in : program.body) {
    for (const Wait& wait : in.waits) {
      const Instruction& other = program.body[static_cast<std::size_t>(wait.instruction)];
      waited_for = std::max(waited_for, in.step - other.step + wait.lag * program.steps_per_body);
    }
  }
  return {.fill = std::max(beside, waited_for), .drain = std::min(beside, depth(program) * program.steps_per_body)};
}

StepRange steps_that_meet(const Program& program) {
  if (is_repeated_alone(program)) return {0, program.steps_per_body - 1};
  return {0, steps_beside(program) + program.steps_per_body - 1};
}

StepRange steps_that_meet(const std::vector<Program>& programs) {
  StepRange steps;
  for (const Program& program : programs) {
    if (program.steps_per_body != programs.front().steps_per_body) {
      throw InternalError(fmt::format("rank 0 has {} training steps in a body, rank {} has {}",
                                      programs.front().steps_per_body, program.rank, program.steps_per_body));
    }
    steps.last = std::max(steps.last, steps_that_meet(program).last);
  }
  return steps;
}

std::vector<StepRange> runs_that_meet(const Program& program) {
  std::vector<StepRange> runs = {steps_that_meet(program)};
  if (is_repeated_alone(program)) return runs;
  const int most = overlapping_steps(program) + 1;
  for (std::int64_t first = 0; first < program.steps_per_body; ++first) {
    for (int others = 0; others < most; ++others) runs.push_back({first, first + others});
  }
  return runs;
}

InstructionList unrolled(const Program& program, StepRange steps) {
  InstructionList all(program.body);
  const std::int64_t begin = repetition_of(program, steps.first);
  const std::int64_t end = repetition_of(program, steps.last) + depth(program) + 1;
  // Where copies of the body's instructions stand, by repetition, then by instruction; -1: it does not run there.
  std::vector<int> copies(static_cast<std::size_t>(end - begin) * program.body.size(), -1);
  const auto copy_in = [&](std::size_t instruction, std::int64_t repetition) -> int& {
    return copies[static_cast<std::size_t>(repetition - begin) * program.body.size() + instruction];
  };
  std::vector<int> last(program.streams.size(), -1);  // by stream, of the repetitions before
  for (std::int64_t r = begin; r < end; ++r) {
    std::vector<int> last_before = last;
    std::vector<bool> has_begun(program.streams.size(), false);
    for (std::size_t i = 0; i < program.body.size(); ++i) {
      const Instruction& in = program.body[i];
      if (!steps.contains(training_step(program, in, r))) continue;
      all.first_wait_.push_back(all.waits_.size());
      const auto wait = [&](int for_copy) {
        if (for_copy >= 0) all.waits_.push_back({for_copy, 0});
      };
      for (const Wait& w : in.waits) {
        if (r - w.lag >= begin) wait(copy_in(static_cast<std::size_t>(w.instruction), r - w.lag));
      }
      const auto stream = static_cast<std::size_t>(in.stream);
      if (program.join && !has_begun[stream]) {
        has_begun[stream] = true;
        for (std::size_t s = 0; s < last_before.size(); ++s) {
          if (s != stream) wait(last_before[s]);
        }
      }
      const int index = static_cast<int>(all.origin_.size());
      copy_in(i, r) = index;
      last[stream] = index;
      all.origin_.push_back({static_cast<int>(i), r});
    }
  }
  all.first_wait_.push_back(all.waits_.size());
  return all;
}

InstructionList body_as_it_meets(const Program& program) {
  if (is_repeated_alone(program)) return program.body;
  if (touches_neighbours_alone(program)) return unrolled(program, {0, depth(program) + 1});
  return unrolled(program, steps_that_meet(program));
}

Program in_one_list(const Program& program, StepRange steps) {
  Program one = program;
  const InstructionList all = unrolled(program, steps);
  one.body.clear();
  one.body.reserve(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    Instruction& in = one.body.emplace_back(all[i]);
    in.waits.assign(all.waits(i).begin(), all.waits(i).end());
    in.step = 0;
  }
  one.join = true;
  one.steps_per_body = 1;
  return one;
}

}  // namespace strata
