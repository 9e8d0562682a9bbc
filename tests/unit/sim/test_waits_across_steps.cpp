/// @file
/// Steps that begin while the one before still ends: the steady state's period against its closed form.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/simulate.hpp"
#include "unit/ir/program/handmade_program.hpp"
#include "unit/sim/fixed_costs.hpp"

namespace strata::test_waits_across_steps {
namespace {

using test::FixedCosts;

constexpr int num_steps = 6;

SimulationResult simulated(const std::vector<Program>& programs, const CostModel& costs, bool in_list_order = false) {
  return simulate(unfolded(programs, 8), costs, {.num_steps = num_steps, .issue_in_list_order = in_list_order});
}

/// n forwards, one backward, one update; then parameters are gathered layer by layer, and forward l of the next step
/// waits for gather l where @p across, or for the end of the step.
Program sharded(int rank, int num_layers, bool across) {
  Handmade h(rank, 2);
  const int group = h.group("data", {0, 1});
  std::vector<int> weights;
  for (int l = 0; l < num_layers; ++l) weights.push_back(h.buffer("w" + std::to_string(l), 64, true));
  const int x = h.buffer("x", 64);
  for (int l = 0; l < num_layers; ++l) {
    Instruction& forward = h.kernel(compute, weights[static_cast<std::size_t>(l)], x, "forward");
    if (across) forward.waits = {{num_layers + 2 + l, 1}};
  }
  h.program.join = !across;
  h.kernel(compute, x, x, "backward");
  h.kernel(compute, x, x, "update");
  for (const int w : weights) {
    h.collective(Collective::all_gather, group, w, "parameters").waits = {{num_layers + 1, 0}};
  }
  return h.program;
}

struct Times {
  double forward, gather;
};

TEST(WaitsAcrossSteps, TheNextStepsParametersAreGatheredUnderItsForward) {
  constexpr int n = 5;
  for (const Times t : {Times{2.0, 0.5}, Times{1.0, 1.0}, Times{0.5, 2.0}}) {
    FixedCosts costs;
    costs.kernels = {{"forward", t.forward}, {"backward", 8.0}, {"update", 0.25}};
    costs.collectives = {{Collective::all_gather, t.gather}};
    // The first gather is waited for; then the slower of the two streams sets the pace.
    const double period = std::max(t.gather + n * t.forward, n * t.gather + t.forward) + 8.25;
    const double alone = n * t.forward + 8.25 + n * t.gather;
    const SimulationResult across = simulated({sharded(0, n, true), sharded(1, n, true)}, costs);
    const SimulationResult apart = simulated({sharded(0, n, false), sharded(1, n, false)}, costs);
    for (int step = 0; step < num_steps; ++step) {
      const auto s = static_cast<std::size_t>(step);
      for (std::size_t rank : {0U, 1U}) {
        EXPECT_DOUBLE_EQ(apart.steps[s][rank].step_seconds, alone);
        EXPECT_DOUBLE_EQ(across.steps[s][rank].step_seconds, step == 0 ? alone : period) << "step " << step;
        EXPECT_DOUBLE_EQ(across.steps[s][rank].compute_seconds, n * t.forward + 8.25);
        EXPECT_DOUBLE_EQ(across.steps[s][rank].communication_seconds, n * t.gather);
      }
    }
    EXPECT_EQ(across.num_events, apart.num_events);
  }
}

TEST(WaitsAcrossSteps, EventsCountFromTheStepsOwnBegin) {
  FixedCosts costs;
  costs.kernels = {{"forward", 1.0}, {"backward", 2.0}, {"update", 0.5}};
  costs.collectives = {{Collective::all_gather, 0.5}};
  const std::vector<Program> programs = {sharded(0, 3, true), sharded(1, 3, true)};
  const SimulationResult result = simulated(programs, costs);
  ASSERT_EQ(result.events.size(), 2U * num_steps * programs[0].body.size());
  for (const TimelineEvent& e : result.events) {
    EXPECT_GE(e.begin_ns, 0);
    if (e.instruction == 0) {
      EXPECT_EQ(e.begin_ns, 0) << "the first forward opens the step";
      EXPECT_EQ(e.end_ns, 1'000'000'000);
    }
  }
}

/// A kernel, and the all-reduce of what it made; the kernel waits for the all-reduce of @p lag steps ago.
Program delayed(int rank, int lag) {
  Handmade h(rank, 2);
  const int group = h.group("data", {0, 1});
  const int gradient = h.buffer("gradient", 64, true);
  Instruction& work = h.kernel(compute, -1, gradient, "work");
  work.waits = {{1, lag}};
  h.program.join = false;
  h.collective(Collective::all_reduce, group, gradient, "bucket").waits = {{0, 0}};
  return h.program;
}

TEST(WaitsAcrossSteps, GradientsOfTwoStepsAgoHideWhatFitsUnderAStep) {
  for (const double reduce : {0.25, 1.0, 1.5}) {
    FixedCosts costs;
    costs.kernels = {{"work", 1.0}};
    costs.collectives = {{Collective::all_reduce, reduce}};
    for (const bool in_list_order : {false, true}) {
      const SimulationResult one = simulated({delayed(0, 1), delayed(1, 1)}, costs, in_list_order);
      const SimulationResult two = simulated({delayed(0, 2), delayed(1, 2)}, costs, in_list_order);
      EXPECT_DOUBLE_EQ(one.steps.back()[0].step_seconds, 1.0 + reduce);
      EXPECT_DOUBLE_EQ(two.steps.back()[0].step_seconds, std::max(1.0, reduce));
    }
  }
}

TEST(WaitsAcrossSteps, ALaterStepsTransferThatNobodyMeetsIsADeadlock) {
  // Rank 1 reduces in a group of its own from the beginning; both post their first and wait for ever.
  Program first = delayed(0, 1);
  Program second = delayed(1, 1);
  second.groups[0].name = "other";
  FixedCosts costs;
  costs.kernels = {{"work", 1.0}};
  costs.collectives = {{Collective::all_reduce, 1.0}};
  EXPECT_THROW(simulated({first, second}, costs), InternalError);
}

}  // namespace
}  // namespace strata::test_waits_across_steps
