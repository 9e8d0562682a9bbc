/// @file
/// Small Programs whose steps overlap through verify, addresses, text, the simulator and exports; what the CPU computes
/// with them is in mpi/exec.

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "ir/program/repetition.hpp"
#include "sim/simulate.hpp"
#include "support/overlapping_programs.hpp"
#include "unit/sim/fixed_costs.hpp"

namespace strata::test_overlapping_programs {
namespace {

using ::testing::HasSubstr;

std::vector<Program> programs_of(const test::OverlapCase& one) { return {one.program(0), one.program(1)}; }

test::FixedCosts costs() {
  test::FixedCosts costs;
  costs.kernels = {{"kernel", 2.0}};
  for (int kind = 0; kind < num_collectives; ++kind) costs.collectives[static_cast<Collective>(kind)] = 3.0;
  return costs;
}

template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(OverlappingPrograms, AreVerifiedOrRefusedByName) {
  for (const test::OverlapCase& one : test::overlap_cases()) {
    const std::vector<Program> programs = programs_of(one);
    const bool is_deadlock = one.refusal == "deadlock";
    std::string refusals;
    for (const Program& program : programs) refusals += refusal_of([&] { verify(program); });
    if (one.refusal.empty() || is_deadlock) {
      EXPECT_EQ(refusals, "") << one.name;
      EXPECT_THAT(refusal_of([&] { verify(programs); }), ::testing::StartsWith(one.refusal)) << one.name;
    } else {
      EXPECT_THAT(refusals, HasSubstr(one.refusal)) << one.name;
    }
    if (one.refusal.empty()) {
      EXPECT_EQ(refusal_of([&] { verify(programs); }), "") << one.name;
    }
  }
}

TEST(OverlappingPrograms, KeepTheirAddressesApart) {
  for (const test::OverlapCase& one : test::overlap_cases()) {
    if (!one.refusal.empty()) continue;
    for (Program program : programs_of(one)) {
      EXPECT_LE(memory_peak(program).total_bytes, program.arena_bytes) << one.name;
      const Program before = program;
      assign_addresses(program);
      EXPECT_EQ(program, before) << one.name;
    }
  }
}

TEST(OverlappingPrograms, ALongLifeHasNoAddress) {
  Program program = test::too_long_a_life(0);
  EXPECT_THAT(refusal_of([&] { assign_addresses(program); }),
              HasSubstr("gradient lives longer than a repetition of the body"));
}

TEST(OverlappingPrograms, ReadBackEqual) {
  for (const test::OverlapCase& one : test::overlap_cases()) {
    for (const Program& program : programs_of(one)) EXPECT_EQ(parse_program(to_text(program)), program) << one.name;
  }
}

/// Every instruction once a step and after all that it waits for; streams in order; the same steps one after the other
/// take no less.
TEST(OverlappingPrograms, AreSimulatedAsTheyRun) {
  constexpr int num_steps = 6;
  for (const test::OverlapCase& one : test::overlap_cases()) {
    const std::vector<Program> programs = programs_of(one);
    const SimulationOptions options{.num_steps = num_steps};
    if (one.refusal == "deadlock") {
      EXPECT_THAT(refusal_of([&] { simulate(unfolded(programs, 2), costs(), options); }), HasSubstr("deadlock"))
          << one.name;
      continue;
    }
    if (!one.refusal.empty()) continue;
    const SimulationResult result = simulate(unfolded(programs, 2), costs(), options);
    std::map<std::tuple<int, std::int64_t, int>, int> count;
    for (const TimelineEvent& e : result.events) {
      ++count[{e.rank, e.step, e.instruction}];
      EXPECT_EQ(e.end_ns - e.begin_ns >= 2'000'000'000, true) << one.name;
    }
    for (const Program& program : programs) {
      for (int i = 0; i < static_cast<int>(program.body.size()); ++i) {
        for (std::int64_t step = 0; step < num_steps; ++step) {
          const bool runs = belongs_to(program, program.body[static_cast<std::size_t>(i)], step);
          EXPECT_EQ((count[{program.rank, step, i}]), runs ? 1 : 0) << one.name << " #" << i << " step " << step;
        }
      }
    }
    double overlapped = 0.0, apart = 0.0;
    for (const auto& step : result.steps) overlapped += step[0].step_seconds;
    const int at_once = programs[0].steps_per_body;
    for (const auto& step : simulate(unfolded(programs, 2), costs(), {.num_steps = at_once}).steps) {
      apart += step[0].step_seconds * num_steps / at_once;
    }
    EXPECT_LE(overlapped, apart) << one.name;
  }
}

/// Rank 1 is a repetition behind rank 0 and no slower: the message is 3 s under 2 s of work on each side.
TEST(OverlappingPrograms, ALateMessageIsHidden) {
  const std::vector<Program> programs = {test::late_message(0), test::late_message(1)};
  const SimulationResult result = simulate(unfolded(programs, 2), costs(), {.num_steps = 6});
  // Rank 0: counts, sends, and may count again when the message has left.
  EXPECT_DOUBLE_EQ(result.steps[3][0].step_seconds, 5.0);
  EXPECT_DOUBLE_EQ(result.steps[3][1].step_seconds, 5.0);
  EXPECT_EQ(result.steady_step, 4);
}

}  // namespace
}  // namespace strata::test_overlapping_programs
