/// @file
/// Simulated times against closed forms: perfect and zero overlap, rendezvous, contention, interference, noise,
/// stragglers; a planted deadlock is named.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "sim/simulate.hpp"
#include "unit/ir/program/handmade_program.hpp"
#include "unit/sim/fixed_costs.hpp"

namespace strata::test_simulate {
namespace {

using test::FixedCosts;
using testing::HasSubstr;
using testing::ThrowsMessage;

double step_seconds(const std::vector<Program>& programs, const CostModel& costs, const SimulationOptions& options = {},
                    int ranks_per_node = 8) {
  double longest = 0.0;
  const SimulationResult result = simulate(unfolded(programs, ranks_per_node), costs, options);
  for (const SimulatedStep& s : result.steps.back()) {
    longest = std::max(longest, s.step_seconds);
  }
  return longest;
}

/// n layers of "backward", each followed by its all-reduce; then "update", which waits for all of them.
Program layered(int rank, int num_ranks, int num_layers, bool overlaps) {
  Handmade h(rank, num_ranks);
  std::vector<int> ranks;
  for (int r = 0; r < num_ranks; ++r) ranks.push_back(r);
  const int group = h.group("data", ranks);
  std::vector<int> reduces;
  for (int l = 0; l < num_layers; ++l) {
    const int gradient = h.buffer("g" + std::to_string(l), 1024);
    h.kernel(compute, -1, gradient, "backward");
    if (!overlaps) continue;
    h.collective(Collective::all_reduce, group, gradient, "bucket").waits = {{2 * l, 0}};
    reduces.push_back(2 * l + 1);
  }
  if (!overlaps) {
    for (int l = 0; l < num_layers; ++l) {
      h.collective(Collective::all_reduce, group, l, "bucket").waits = {{num_layers - 1, 0}};
      reduces.push_back(num_layers + l);
    }
  }
  Instruction& update = h.kernel(compute, 0, 0, "update");
  for (const int r : reduces) update.waits.push_back({r, 0});
  return h.program;
}

std::vector<Program> layered_job(int num_ranks, int num_layers, bool overlaps) {
  std::vector<Program> programs;
  for (int r = 0; r < num_ranks; ++r) programs.push_back(layered(r, num_ranks, num_layers, overlaps));
  return programs;
}

FixedCosts layer_costs(double backward, double all_reduce, double update) {
  FixedCosts costs;
  costs.kernels = {{"backward", backward}, {"update", update}};
  costs.collectives = {{Collective::all_reduce, all_reduce}};
  return costs;
}

TEST(Simulate, WithoutOverlapTimesAddUp) {
  EXPECT_DOUBLE_EQ(step_seconds(layered_job(4, 6, false), layer_costs(2.0, 1.0, 0.5)), 6 * 2.0 + 6 * 1.0 + 0.5);
}

TEST(Simulate, PerfectOverlapExposesTheLastTransferAlone) {
  EXPECT_DOUBLE_EQ(step_seconds(layered_job(4, 6, true), layer_costs(2.0, 1.0, 0.5)), 6 * 2.0 + 1.0 + 0.5);
  // Communication longer than compute: the first backward is exposed instead.
  EXPECT_DOUBLE_EQ(step_seconds(layered_job(4, 6, true), layer_costs(1.0, 2.0, 0.5)), 1.0 + 6 * 2.0 + 0.5);
}

TEST(Simulate, TheStepsOfARankAreAccountedFor) {
  const std::vector<Program> programs = layered_job(2, 6, true);
  const SimulationResult result = simulate(unfolded(programs, 8), layer_costs(2.0, 1.0, 0.5), {.num_steps = 3});
  ASSERT_EQ(result.steps.size(), 3U);
  for (const auto& classes : result.steps) {
    for (const SimulatedStep& s : classes) {
      EXPECT_DOUBLE_EQ(s.step_seconds, 13.5);
      EXPECT_DOUBLE_EQ(s.compute_seconds, 12.5);
      EXPECT_DOUBLE_EQ(s.exposed_seconds, 1.0);
      EXPECT_DOUBLE_EQ(s.communication_seconds, 6.0);
    }
  }
  EXPECT_EQ(result.num_events, 3 * 2 * 13);
  ASSERT_EQ(result.events.size(), 3U * 2 * 13);
  Timeline timeline{.simulated = true, .streams = programs[0].streams, .instructions = {}, .events = result.events};
  for (const Instruction& in : programs[0].body) timeline.instructions.push_back(instruction_label(in));
  std::ranges::stable_sort(timeline.events, {},
                           [](const TimelineEvent& e) { return std::tuple(e.rank, e.step, e.begin_ns); });
  EXPECT_NO_THROW(verify(timeline));
}

/// A broadcast that begins under an all-reduce: what both cover is communication once.
TEST(Simulate, CommunicationIsTheTimeInWhichSomeCollectiveRuns) {
  std::vector<Program> programs;
  for (const int rank : {0, 1}) {
    Handmade h(rank, 2);
    h.program.streams.emplace_back("communication beside it");
    const int group = h.group("all", {0, 1});
    const int x = h.buffer("x", 64);
    const int y = h.buffer("y", 64);
    h.collective(Collective::all_reduce, group, x, "bucket");
    h.kernel(compute, -1, y, "work");
    Instruction& later = h.collective(Collective::broadcast, group, y, "panel");
    later.stream = 2;
    later.waits = {{1, 0}};
    programs.push_back(h.program);
  }
  FixedCosts costs;
  costs.kernels = {{"work", 2.0}};
  costs.collectives = {{Collective::all_reduce, 3.0}, {Collective::broadcast, 2.0}};
  const SimulatedStep step = simulate(unfolded(programs, 8), costs).steps[0][0];
  EXPECT_DOUBLE_EQ(step.step_seconds, 4.0);
  EXPECT_DOUBLE_EQ(step.communication_seconds, 4.0);  // 0 to 3, and 2 to 4
  EXPECT_DOUBLE_EQ(step.compute_seconds, 2.0);
  EXPECT_DOUBLE_EQ(step.exposed_seconds, 2.0);
}

TEST(Simulate, ACollectiveStartsWhenItsLastMemberHasCome) {
  FixedCosts costs = layer_costs(1.0, 0.25, 0.5);
  const std::vector<Program> programs = layered_job(3, 1, true);
  EXPECT_DOUBLE_EQ(step_seconds(programs, costs, {.stragglers = {{1, 4.0}}}), 4.0 + 0.25 + 4.0 * 0.5);
  const SimulationResult result = simulate(unfolded(programs, 8), costs, {.stragglers = {{1, 4.0}}});
  EXPECT_DOUBLE_EQ(result.steps[0][0].step_seconds, 4.0 + 0.25 + 0.5) << "the others do not wait after it";
  EXPECT_EQ(result.events[1].begin_ns, 1'000'000'000) << "its turn had come on rank 0";
}

/// Rank pairs (0, n), (1, n+1), … on two nodes of n ranks reduce at once.
std::vector<Program> pairs_over_two_nodes(int ranks_per_node) {
  std::vector<Program> programs;
  for (int r = 0; r < 2 * ranks_per_node; ++r) {
    Handmade h(r, 2 * ranks_per_node);
    const int low = r % ranks_per_node;
    const int group = h.group("pair" + std::to_string(low), {low, low + ranks_per_node});
    const int x = h.buffer("x", 64);
    h.kernel(compute, -1, x, "backward");
    h.collective(Collective::all_reduce, group, x, "bucket").waits = {{0, 0}};
    programs.push_back(h.program);
  }
  return programs;
}

TEST(Simulate, TransfersShareTheNicsOfANode) {
  for (const int nics : {1, 2, 4}) {
    FixedCosts costs(nics);
    costs.kernels = {{"backward", 1.0}};
    costs.collectives = {{Collective::all_reduce, 2.0}};
    EXPECT_DOUBLE_EQ(step_seconds(pairs_over_two_nodes(4), costs, {}, 4), 1.0 + 2.0 * 4 / nics) << nics;
  }
}

/// A message for each pair of a sender and a receiver, all at once: a rank's messages have a stream each.
std::vector<Program> messages(int num_ranks, const std::vector<std::pair<int, int>>& pairs) {
  std::vector<Program> programs;
  for (int r = 0; r < num_ranks; ++r) {
    Handmade h(r, num_ranks);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const auto [from, to] = pairs[i];
      if (r != from && r != to) continue;
      const int group = h.group(fmt::format("pair{}", i), {from, to});
      const int x = h.buffer(fmt::format("x{}", i), 64);
      h.program.streams.push_back(fmt::format("message{}", i));
      Instruction& in = r == from ? h.collective(Collective::send, group, x, "message", 1)
                                  : h.collective(Collective::recv, group, x, "message", 0);
      in.stream = static_cast<int>(h.program.streams.size()) - 1;
    }
    programs.push_back(h.program);
  }
  return programs;
}

TEST(Simulate, ANodeSendsAndReceivesAtOnceEachAtFullSpeed) {
  FixedCosts costs;
  costs.collectives = {{Collective::send, 2.0}};
  const auto seconds = [&](int num_ranks, const std::vector<std::pair<int, int>>& pairs, int ranks_per_node = 1) {
    return step_seconds(messages(num_ranks, pairs), costs, {}, ranks_per_node);
  };
  EXPECT_DOUBLE_EQ(seconds(2, {{0, 1}, {1, 0}}), 2.0) << "an exchange";
  EXPECT_DOUBLE_EQ(seconds(3, {{0, 1}, {1, 2}, {2, 0}}), 2.0) << "a ring";
  EXPECT_DOUBLE_EQ(seconds(3, {{0, 1}, {0, 2}}), 4.0) << "one node sends both";
  EXPECT_DOUBLE_EQ(seconds(3, {{0, 2}, {1, 2}}), 4.0) << "one node receives both";
  EXPECT_DOUBLE_EQ(seconds(4, {{0, 2}, {1, 3}, {2, 0}}, 2), 4.0)
      << "two one way share it, whatever comes the other way";
}

TEST(Simulate, FoldedTransfersShareTheirImagesNicsToo) {
  const std::vector<Program> programs = pairs_over_two_nodes(4);
  Job folded{.programs = {&programs[0]}, .class_of_rank = std::vector<int>(8, 0), .ranks_per_node = 4};
  FixedCosts costs(2);
  costs.kernels = {{"backward", 1.0}};
  costs.collectives = {{Collective::all_reduce, 2.0}};
  EXPECT_EQ(simulate(folded, costs).steps[0][0].step_seconds, step_seconds(programs, costs, {}, 4));
}

TEST(Simulate, ComputeAndCommunicationSlowEachOtherDown) {
  // One transfer of 3 s beside kernels of 2 + 2 s: at half speed each, 2 s of kernel take 4 s; the transfer at a third
  // of its speed while kernels run has 3 - 4/3 left when they end.
  Handmade a(0, 2);
  const int group = a.group("all", {0, 1});
  const int x = a.buffer("x", 64);
  const int y = a.buffer("y", 64);
  a.collective(Collective::all_reduce, group, x, "bucket");
  a.kernel(compute, -1, y, "work");
  a.kernel(compute, -1, y, "work");
  Handmade b = a;
  b.program.rank = 1;
  FixedCosts costs;
  costs.kernels = {{"work", 1.0}};
  costs.collectives = {{Collective::all_reduce, 3.0}};
  costs.slow = {.compute = 2.0, .communication = 3.0};
  EXPECT_DOUBLE_EQ(step_seconds({a.program, b.program}, costs), 4.0 + (3.0 - 4.0 / 3.0));
  costs.slow = {.compute = 2.0, .communication = 1.0};  // the transfer ends first: 3 s at half speed, 0.5 s at full
  EXPECT_DOUBLE_EQ(step_seconds({a.program, b.program}, costs), 3.5);
}

TEST(Simulate, AHostThatComputesPostsInListOrder) {
  Handmade h(0, 2);
  const int group = h.group("all", {0, 1});
  const int x = h.buffer("x", 64);
  const int y = h.buffer("y", 64);
  h.kernel(compute, -1, y, "work");
  h.collective(Collective::all_reduce, group, x, "bucket");
  Handmade other = h;
  other.program.rank = 1;
  FixedCosts costs;
  costs.kernels = {{"work", 2.0}};
  costs.collectives = {{Collective::all_reduce, 1.0}};
  EXPECT_DOUBLE_EQ(step_seconds({h.program, other.program}, costs), 2.0);
  EXPECT_DOUBLE_EQ(step_seconds({h.program, other.program}, costs, {.issue_in_list_order = true}), 3.0);
}

TEST(Simulate, NoiseIsByRankStepAndSeedAndKeepsTheMean) {
  const std::vector<Program> programs = layered_job(1, 2000, true);
  FixedCosts costs = layer_costs(1.0, 0.0, 0.0);
  const double once = step_seconds(programs, costs, {.noise = 0.2, .seed = 5});
  EXPECT_EQ(once, step_seconds(programs, costs, {.noise = 0.2, .seed = 5}));
  EXPECT_NE(once, step_seconds(programs, costs, {.noise = 0.2, .seed = 6}));
  EXPECT_NEAR(once / 2000.0, 1.0, 5.0 * 0.2 / std::sqrt(2000.0));
}

TEST(Simulate, FoldedRanksCannotDiffer) {
  const Program program = layered(0, 4, 2, true);
  const Job folded{.programs = {&program}, .class_of_rank = {0, 0, 0, 0}, .ranks_per_node = 4};
  const FixedCosts costs = layer_costs(1.0, 1.0, 1.0);
  EXPECT_EQ(simulate(folded, costs).steps[0][0].step_seconds, step_seconds(layered_job(4, 2, true), costs));
  for (const SimulationOptions& differing :
       {SimulationOptions{.noise = 0.1}, SimulationOptions{.stragglers = {{1, 2.0}}}}) {
    EXPECT_THAT([&] { simulate(folded, costs, differing); },
                ThrowsMessage<UserError>(HasSubstr("4 ranks are folded into 1 classes")));
  }
}

TEST(Simulate, MessagesMeetTheirOwnKind) {
  // Rank 0 computes and sends; rank 1 receives and computes; three times.
  Handmade sender(0, 2);
  Handmade receiver(1, 2);
  for (Handmade* h : {&sender, &receiver}) h->group("pair", {0, 1});
  for (int i = 0; i < 3; ++i) {
    const int x = sender.buffer("x" + std::to_string(i), 64);
    sender.kernel(compute, -1, x, "work");
    sender.collective(Collective::send, 0, x, "message", 1).waits = {{2 * i, 0}};
    const int y = receiver.buffer("y" + std::to_string(i), 64);
    receiver.collective(Collective::recv, 0, y, "message", 0);
    receiver.kernel(compute, y, y, "work").waits = {{2 * i, 0}};
  }
  FixedCosts costs;
  costs.kernels = {{"work", 1.0}};
  costs.collectives = {{Collective::send, 0.25}};
  EXPECT_DOUBLE_EQ(step_seconds({sender.program, receiver.program}, costs), 3 * 1.0 + 0.25 + 1.0);
}

TEST(Simulate, ADeadlockIsNamed) {
  std::vector<Program> programs;
  for (const int rank : {0, 1}) {
    Handmade h(rank, 2);
    const int first = h.group("first", {0, 1});
    const int second = h.group("second", {0, 1});
    const int x = h.buffer("x", 64);
    h.collective(Collective::all_reduce, rank == 0 ? first : second, x, "a");
    h.collective(Collective::all_reduce, rank == 0 ? second : first, x, "b");
    programs.push_back(h.program);
  }
  FixedCosts costs;
  costs.collectives = {{Collective::all_reduce, 1.0}};
  EXPECT_THAT([&] { step_seconds(programs, costs); },
              ThrowsMessage<InternalError>(AllOf(HasSubstr("deadlock"),
                                                 HasSubstr("rank 0 waits at #0 all_reduce a in group first = [0, 1]"),
                                                 HasSubstr("rank 1 waits at #0 all_reduce a in group second"))));
  EXPECT_THAT(complaint(programs), HasSubstr("deadlock")) << "verify says the same";
}

}  // namespace
}  // namespace strata::test_simulate
