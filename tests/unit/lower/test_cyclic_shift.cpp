/// @file
/// Ranks of a micro-batch each that keep a distance, lowered: which tables and numbers of stages they take, and what
/// they send.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "partition/fresh_table.hpp"
#include "partition/ring_pace.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_cyclic_shift {
namespace {

using ::testing::HasSubstr;

ModelGraph six_blocks() { return build_model({.name = "mlp", .widths = {8, 6, 8, 6, 8, 6, 8, 4}}); }

Plan ring_plan(int micro_batches, int stages, const std::string& fresh, const std::string& shift) {
  Plan plan;
  plan.strategy = "cyclic";
  plan.mesh.axes = {{"micro_batch", micro_batches}};
  plan.mesh.ranks_per_node = micro_batches;
  plan.stages.count = stages;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = micro_batches, .fresh = fresh};
  plan.schedule.shift = shift;
  plan.global_batch = 2 * micro_batches;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  return plan;
}

TEST(CyclicShift, PassesWaitForPassesOfTheReplicaBefore) {
  using Pass = RingPace::Pass;
  const auto pace = [](int n, int k, const char* shift, int replica) {
    Schedule schedule{.kind = ScheduleKind::cyclic, .micro_batches = n};
    schedule.shift = shift;
    return ring_pace(schedule, k, replica);
  };
  EXPECT_EQ(pace(3, 3, "free", 1), std::nullopt);
  // Three replicas of three stages: the second one's first pass waits for the first one's second.
  EXPECT_EQ(pace(3, 3, "paced", 1)->awaited(0), (Pass{1, 0}));
  EXPECT_EQ(pace(3, 3, "paced", 1)->awaited(5), (Pass{0, 1})) << "which has gone on to the next training step";
  EXPECT_EQ(pace(3, 3, "paced", 0)->awaited(0), (Pass{1, -1})) << "the first one is a training step ahead of the last";
  EXPECT_EQ(pace(3, 3, "paced", 0)->awaited(5), (Pass{0, 0}));
  EXPECT_EQ(pace(3, 3, "begun", 1)->awaited(0), (Pass{0, 0}));
  EXPECT_EQ(pace(2, 3, "paced", 1)->awaited(0), (Pass{2, 0}));
  EXPECT_EQ(pace(4, 2, "begun", 1)->awaited(0), (Pass{3, -1})) << "a pass apart: the one before it can begin";
  // What one waits for is what waits for it.
  for (const auto& [n, k] : {std::pair{2, 2}, {3, 3}, {4, 4}, {2, 3}, {4, 2}, {4, 6}}) {
    for (const char* shift : {"paced", "begun"}) {
      for (int replica = 0; replica < n; ++replica) {
        const RingPace here = *pace(n, k, shift, replica), next = *pace(n, k, shift, (replica + 1) % n);
        for (int pass = 0; pass < 2 * k; ++pass) {
          const Pass waiting = here.waiting(pass);
          const Pass back = next.awaited(waiting.number);
          EXPECT_EQ(back.number, pass);
          EXPECT_EQ(back.step, -waiting.step);
          EXPECT_EQ(waiting.step + RingPace::step_of_token(back), RingPace::step_of_token(waiting))
              << "both ends say which training step the token is of";
        }
      }
    }
  }
}

/// A replica sends on what has come to it once a pass is over, whose kernels read it too. Where a run ends with another
/// training step than the body, messages run whose pass does not: then nothing but their own arrival is before them.
TEST(CyclicShift, WhatIsHandedOnWaitsForItsArrivalWhateverStepIsTheLast) {
  for (const char* shift : {"paced", "begun"}) {
    Program program = lower(ring_plan(3, 3, "none", shift), six_blocks(), 0, no_workspace);
    EXPECT_NO_THROW(verify(program));
    int erased = 0;
    for (Instruction& in : program.body) {
      if (!in.is_collective() || in.collective != Collective::send) continue;
      erased += static_cast<int>(std::erase_if(in.waits, [&](const Wait& wait) {
        const Instruction& other = program.body[static_cast<std::size_t>(wait.instruction)];
        return other.is_collective() && other.collective == Collective::recv && other.name == in.name;
      }));
    }
    EXPECT_GT(erased, 0) << shift;
    EXPECT_THAT(words_of<InternalError>([&] { verify(program); }), HasSubstr("not ordered after")) << shift;
  }
}

/// All ranks' Programs together: every token is received, and nobody waits for ever.
TEST(CyclicShift, ProgramsVerify) {
  const ModelGraph graph = six_blocks();
  for (const auto& [n, k] : {std::pair{2, 1}, {2, 2}, {3, 3}, {4, 4}, {2, 3}, {4, 2}, {4, 6}}) {
    for (const char* shift : {"paced", "begun"}) {
      for (const char* fresh : {"none", "v2"}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} stages, {}, {}", n, k, shift, fresh));
        const std::vector<Program> programs = all_ranks(ring_plan(n, k, fresh, shift), graph, no_workspace);
        EXPECT_NO_THROW(verify(programs));
        for (const Program& program : programs) {
          EXPECT_EQ(parse_program(to_text(program)), program);
          int num_sent = 0, num_received = 0;
          for (const Instruction& in : program.body) {
            if (in.name != "pace") continue;
            EXPECT_EQ(full_bytes(program, in), 4);
            (in.collective == Collective::send ? num_sent : num_received) += 1;
          }
          EXPECT_EQ(num_sent, 2 * k * program.steps_per_body) << "one behind every pass";
          EXPECT_EQ(num_received, 2 * k * program.steps_per_body) << "one before every pass";
        }
      }
    }
  }
}

/// Where ranks keep their distance, what they read is there: of all tables those that are nowhere fresher than v2.
TEST(CyclicShift, TakesExactlyTheTablesWithinV2) {
  const ModelGraph graph = six_blocks();
  const FreshTable most = freshest(3, 3);
  int num_taken = 0;
  for (unsigned number = 0; number < 512; ++number) {
    FreshTable table = never_fresh(3, 3);
    bool is_within = true;
    for (unsigned cell = 0; cell < 9; ++cell) {
      char& digit = table[cell / 3][cell % 3];
      digit = (number >> cell & 1U) != 0 ? '1' : '0';
      is_within &= digit <= most[cell / 3][cell % 3];
    }
    const Plan plan = ring_plan(3, 3, fmt::format("{} {} {}", table[0], table[1], table[2]), "paced");
    if (!is_within) {
      EXPECT_THAT(lowering_refusal(plan, graph), HasSubstr("with schedule.shift = paced and micro-batch "));
    } else if (++num_taken % 8 == 1) {  // some of them
      EXPECT_NO_THROW(verify(all_ranks(plan, graph, no_workspace))) << plan.schedule.fresh;
    }
  }
  EXPECT_EQ(num_taken, 64);
}

TEST(CyclicShift, RefusesByName) {
  const ModelGraph graph = six_blocks();
  EXPECT_THAT(lowering_refusal(ring_plan(3, 4, "v2", "paced"), graph),
              HasSubstr("schedule.shift = paced with 4 stages and 3 micro-batches, each 2·4/3 passes behind the one "
                        "before, no whole number,"));
  EXPECT_THAT(lowering_refusal(ring_plan(3, 3, "001 111 111", "begun"), graph),
              HasSubstr("with schedule.shift = begun and micro-batch 1 of 3 at stage 0 of 3 reading its own step's"));
  Plan alone = ring_plan(3, 3, "v2", "paced");
  alone.mesh.axes = {};
  alone.mesh.ranks_per_node = 1;
  EXPECT_THAT(lowering_refusal(alone, graph),
              HasSubstr("schedule.shift = paced with mesh axis micro_batch = 1, which leaves no rank to keep behind,"));
}

}  // namespace
}  // namespace strata::test_cyclic_shift
