/// @file
/// What cyclic training keeps at every time step, counted in Programs: activations of stages between their forward and
/// their backward, and versions of parameters that somebody still reads.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/program/repetition.hpp"
#include "unit/lower/cyclic_implementations.hpp"
#include "unit/lower/equal_layers.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_live_stages {
namespace {

/// A layer a stage, and one more before the first, so that its backward reads parameters as the others' do.
ModelGraph stages_of_layers(int n) {
  GraphBuilder graph("layers");
  int x = graph.input("image", {layer_width}, TensorRole::image);
  const int label = graph.input("label", {}, TensorRole::targets);
  for (int j = 0; j < n; ++j) {
    graph.begin_block(fmt::format("block[{}]", j));
    if (j == 0) x = graph.linear("first", x, {.in = layer_width, .out = layer_width, .bias = false});
    x = graph.linear("linear", x, {.in = layer_width, .out = layer_width, .bias = false});
    graph.end_block();
  }
  graph.cross_entropy("loss", x, label);
  return graph.finish(1);
}

int stage_of(const Instruction& in) { return std::stoi(in.name.substr(in.name.find('[') + 1)); }

/// When the pass of an instruction is due, a time step a stage and pass: those of a micro-batch follow each other, and
/// those of the next one two time steps behind.
std::int64_t due(const Instruction& in, std::int64_t step, int n) {
  const std::int64_t begin = 2 * (step * n + in.micro_batch);
  return in.phase == Phase::forward ? begin + stage_of(in) : begin + 2 * n - 1 - stage_of(in);
}

/// An instruction of the compute stream and the time step that it runs in.
struct Timed {
  std::int64_t time = 0;
  const Instruction* instruction = nullptr;
};

/// Of @p steps training steps. What belongs to no pass runs in that of the one before it. Passes are in the order of
/// their time steps, no two in one.
std::vector<Timed> timed(const Program& program, int n, std::int64_t steps) {
  const InstructionList all = unrolled(program, {0, steps - 1});
  std::vector<Timed> result;
  std::int64_t now = -1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Instruction& in = all[i];
    if (in.is_collective()) continue;
    if (in.phase == Phase::forward || in.phase == Phase::backward) {
      if (!in.name.ends_with(".linear")) continue;
      const std::int64_t time = due(in, training_step(program, in, all.origin(i).repetition), n);
      EXPECT_GE(time, now) << "rank " << program.rank << ": " << in.name;
      now = time;
    }
    result.push_back({now, &in});
  }
  return result;
}

/// Between the filling and the draining of ranks.
struct Steady {
  std::int64_t steps, begin, end;
  Steady(const Program& program, int n)
      : steps(program.steps_per_body + 4), begin(2 * n * 2), end(2 * n * (program.steps_per_body + 2)) {}
};

/// By time step how many stages' inputs are kept for their backward, over all ranks: from the forward that reads one to
/// the instruction behind which the Program frees it.
std::set<int> live_activations(const std::vector<Program>& programs, int n) {
  const Steady steady(programs.front(), n);
  std::vector<int> live(static_cast<std::size_t>(2 * n * (steady.steps + 2)), 0);
  for (const Program& program : programs) {
    std::map<int, std::int64_t> since;  // by buffer that a forward has read
    for (const auto& [time, in] : timed(program, n, steady.steps)) {
      if (in->kernel == Kernel::linear_forward) since[in->inputs.front().buffer] = time;
      for (const int buffer : in->frees) {
        const auto found = since.find(buffer);
        if (found == since.end()) continue;
        EXPECT_EQ(in->kernel, Kernel::linear_backward_weight) << in->name;
        for (std::int64_t t = found->second; t <= time; ++t) ++live[static_cast<std::size_t>(t)];
        since.erase(found);
      }
    }
  }
  return {live.begin() + steady.begin, live.begin() + steady.end};
}

TEST(LiveStages, ActivationsAreHalfOfAllAtEveryTimeStep) {
  for (const Implementation implementation : all_implementations) {
    for (const int n : {2, 3, 4, 8}) {
      const std::vector<Program> programs =
          all_ranks(plan_of(implementation, n, "v2"), stages_of_layers(n), no_workspace);
      EXPECT_EQ(live_activations(programs, n), std::set{n * (n + 1) / 2})
          << n << " stages, implementation " << static_cast<int>(implementation);
    }
  }
}

/// The most versions of stages that are there to be read at once: buffers of parameters that some instruction reads
/// before another one writes them.
int most_live_versions(const std::vector<Program>& programs, int n) {
  const Steady steady(programs.front(), n);
  std::map<std::int64_t, int> change;  // by time step: how many more
  for (const Program& program : programs) {
    std::map<int, std::int64_t> written, read;  // by buffer: by whom last
    const auto end = [&](int buffer) {
      if (!read.contains(buffer)) return;
      ++change[written.contains(buffer) ? written[buffer] : 0];
      --change[read[buffer] + 1];
      read.erase(buffer);
    };
    const auto is_parameter = [&](const Operand& operand) {
      return program.buffers[static_cast<std::size_t>(operand.buffer)].parameter.ends_with(".linear.weight");
    };
    for (const auto& [time, in] : timed(program, n, steady.steps)) {
      for (const Operand& operand : in->inputs) {
        if (is_parameter(operand)) read[operand.buffer] = time;
      }
      for (const Operand& operand : in->outputs) {
        if (!is_parameter(operand)) continue;
        end(operand.buffer);
        written[operand.buffer] = time + 1;
      }
    }
    for (std::size_t b = 0; b < program.buffers.size(); ++b) end(static_cast<int>(b));
  }
  int live = 0, most = 0;
  for (const auto& [time, more] : change) {
    live += more;
    if (steady.begin <= time && time < steady.end) most = std::max(most, live);
  }
  return most;
}

TEST(LiveStages, VersionsOfSharedStagesAreThoseThatAreRead) {
  const std::map<int, std::pair<int, int>> expected = {{2, {4, 3}}, {3, {6, 5}}, {4, {8, 6}}, {8, {16, 13}}};
  for (const auto& [n, versions] : expected) {
    for (const Implementation implementation : {Implementation::single, Implementation::pipeline}) {
      const auto most = [&](const char* fresh) {
        return most_live_versions(all_ranks(plan_of(implementation, n, fresh), stages_of_layers(n), no_workspace), n);
      };
      EXPECT_EQ(most("none"), versions.first) << n;
      EXPECT_EQ(most("v2"), versions.second) << n;
    }
  }
}

}  // namespace
}  // namespace strata::test_live_stages
