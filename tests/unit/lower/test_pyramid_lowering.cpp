/// @file
/// Programs of a pyramid of ranks: sound over all ranks, what they hold and send, what is refused.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ir/plan/stage_pyramid.hpp"
#include "lower/plan_memory.hpp"
#include "lower/rank_classes.hpp"
#include "unit/lower/equal_layers.hpp"
#include "unit/lower/planned.hpp"

namespace strata::test_pyramid_lowering {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

/// @p n stages and micro-batches of two samples.
Plan pyramid_plan(int n, const std::string& fresh, DType compute = DType::f32) {
  Plan plan;
  plan.strategy = "pyramid";
  plan.mesh = {.ranks_per_node = StagePyramid{n}.num_ranks(), .axes = {{"stage", n}}, .placement = "pyramid"};
  plan.stages.count = n;
  plan.schedule = {.kind = ScheduleKind::cyclic, .micro_batches = n, .fresh = fresh};
  plan.global_batch = 2 * n;
  plan.optimizer = {.kind = "sgd", .momentum = 0.5};
  plan.dtypes.compute = compute;
  return plan;
}

std::vector<Program> pyramid_programs(const Plan& plan, const ModelGraph& graph) {
  return all_ranks(plan, graph, no_workspace);
}

TEST(PyramidLowering, OrdersAndProgramsVerify) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {16, 24, 16, 24, 16, 10}});
  for (const int n : {1, 2, 3, 4}) {
    for (const char* fresh : {"none", "v2"}) {
      for (const DType compute : {DType::f32, DType::bf16}) {
        Plan plan = pyramid_plan(n, fresh, compute);
        plan.schedule.sum = compute == DType::f32 ? "inside" : "after";
        plan.overlap.bucket_bytes = compute == DType::f32 ? 100 : 1 << 20;
        plan.recompute = compute == DType::f32 ? Recompute::block : Recompute::none;
        SCOPED_TRACE(fmt::format("{}, {}", n, fresh));
        ASSERT_NO_THROW(verify(step_orders(plan, graph)));
        ASSERT_NO_THROW(verify(pyramid_programs(plan, graph)));
        EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan);
      }
    }
  }
}

/// A replica that only takes micro-batches which read their own step's parameters has one version, the others two; all
/// have the states of the optimizer. Ranks are equally full, but for the versions.
TEST(PyramidLowering, ReplicasHoldTheirStagesStates) {
  const auto versions = [&](int n, const char* fresh) {
    std::vector<std::int64_t> all;
    for (const Program& program : pyramid_programs(pyramid_plan(n, fresh), equal_layers(n))) {
      all.push_back(held_bytes(program, Category::parameter) / layer_bytes);
      EXPECT_EQ(held_bytes(program, Category::optimizer), layer_bytes) << "its momentum";
    }
    return all;
  };
  EXPECT_EQ(versions(2, "v2"), (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_EQ(versions(3, "v2"), (std::vector<std::int64_t>{2, 2, 1, 2, 2, 1}));
  EXPECT_EQ(versions(4, "v2"), (std::vector<std::int64_t>{2, 2, 2, 1, 2, 2, 2, 2, 1, 1}));
  EXPECT_EQ(versions(3, "none"), (std::vector<std::int64_t>(6, 2)));
}

/// With G bytes of gradients a stage of C replicas sends (N - 1 + C - 1) G of sums a training step, and no parameters;
/// with A bytes of activations of a micro-batch between two stages every micro-batch sends A both ways across each cut.
TEST(PyramidLowering, SendsSumsAndActivationsToOtherRanksAlone) {
  constexpr std::int64_t gradients = layer_bytes, activations = 2 * layer_width * 4;
  for (const int n : {2, 3, 4}) {
    for (const char* fresh : {"none", "v2"}) {
      std::int64_t sums = 0, crossing = 0;
      for (const Program& program : pyramid_programs(pyramid_plan(n, fresh), equal_layers(n))) {
        for (const Instruction& in : program.body) {
          if (!in.is_collective()) continue;
          ASSERT_TRUE(in.collective == Collective::send || in.collective == Collective::recv) << in.name;
          ASSERT_NE(in.phase, Phase::update) << in.name;
          (in.phase == Phase::reduce ? sums : crossing) += bytes_sent(program, in);
        }
      }
      const int steps = pyramid_programs(pyramid_plan(n, fresh), equal_layers(n)).front().steps_per_body;
      EXPECT_EQ(sums, steps * (n - 1) * (3 * n - 2) / 2 * gradients) << n << ", " << fresh;
      EXPECT_EQ(crossing, steps * 2 * n * (n - 1) * activations) << n << ", " << fresh;
    }
  }
}

/// Between forward and backward of a stage nothing else of its rank is kept: a micro-batch at a time, N(N+1)/2 of all
/// ranks.
TEST(PyramidLowering, ARankKeepsOneMicroBatchAtATime) {
  for (const Program& program : pyramid_programs(pyramid_plan(4, "v2"), equal_layers(4))) {
    int micro_batch = -1;
    for (const Instruction& in : program.body) {
      if (in.is_collective() || in.phase == Phase::update) continue;
      const bool begins = in.phase == Phase::forward && in.micro_batch != micro_batch;
      if (begins) micro_batch = in.micro_batch;
      if (in.phase != Phase::backward) continue;
      EXPECT_EQ(in.micro_batch, micro_batch) << program.rank << ": " << in.name;
    }
  }
}

/// What is live at once fits together, however many training steps a body holds: messages leave their memory in time.
TEST(PyramidLowering, MemoryDoesNotGrowWithTheStepsOfABody) {
  const ModelGraph graph = equal_layers(5);
  for (const char* fresh : {"none", "v2"}) {
    const Plan plan = pyramid_plan(5, fresh);
    EXPECT_EQ(lower(plan, graph, 0, no_workspace).steps_per_body, 12);
    for (const int rank : {0, 6, 9, 12, 14}) {
      const Program program = lower(plan, graph, rank, no_workspace);
      // Sums that are on their way to others, and the next ones.
      constexpr std::int64_t under_way = 2 * layer_bytes + 4096;
      EXPECT_LE(program.arena_bytes, memory_peak(program).total_bytes + under_way) << fresh << ", rank " << rank;
    }
  }
}

TEST(PyramidLowering, EveryRankIsAClassOfItsOwn) {
  const ModelGraph graph = equal_layers(3);
  const Plan plan = pyramid_plan(3, "v2");
  EXPECT_EQ(rank_classes(plan, graph).representatives, (std::vector{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(fullest_ranks(plan, graph), (std::vector{0, 1, 2, 3, 4, 5}));
  std::vector<std::int64_t> of_stage(3, 0);
  for (const Program& program : pyramid_programs(plan, graph)) {
    std::int64_t& most = of_stage[static_cast<std::size_t>(coordinate(plan.mesh, "stage", program.rank))];
    most = std::max(most, program.arena_bytes);
  }
  EXPECT_EQ(plan_memory(plan, graph, no_workspace).stage_peak_bytes, of_stage);
}

std::string complaint_about(const std::vector<Program>& programs) {
  try {
    verify(programs);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

/// Every message is needed by its other end: verify names what is missing.
TEST(PyramidLowering, WhatIsLeftOutIsNamed) {
  const std::vector<Program> programs = pyramid_programs(pyramid_plan(3, "v2"), equal_layers(3));
  int num_messages = 0;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    for (std::size_t i = 0; i < programs[rank].body.size(); ++i) {
      const Instruction& left_out = programs[rank].body[i];
      if (!left_out.is_collective() || !left_out.allocs.empty() || !left_out.frees.empty()) continue;
      std::vector<Program> others = programs;
      std::vector<Instruction>& body = others[rank].body;
      body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
      for (Instruction& in : body) {
        std::erase_if(in.waits, [&](const Wait& wait) { return wait.instruction == static_cast<int>(i); });
        for (Wait& wait : in.waits) wait.instruction -= wait.instruction > static_cast<int>(i) ? 1 : 0;
      }
      EXPECT_THAT(complaint_about(others), AnyOf(HasSubstr(left_out.name), HasSubstr("wait for ever"))) << i;
      ++num_messages;
    }
  }
  EXPECT_GE(num_messages, 4);
}

TEST(PyramidLowering, RefusesByName) {
  const ModelGraph graph = equal_layers(4);
  const auto refused = [&](const auto& ask) {
    Plan plan = pyramid_plan(3, "v2");
    ask(plan);
    return lowering_refusal(plan, graph);
  };
  EXPECT_THAT(refused([](Plan& p) { p.schedule.fresh = "011 011 111"; }),
              HasSubstr("micro-batch 0 of 3 at stage 1 of 3 reading its own step's parameters"));
  EXPECT_THAT(refused([](Plan& p) { p.schedule.spread = "direct"; }),
              HasSubstr("mesh.placement = pyramid with schedule.spread = direct"));
  EXPECT_THAT(refused([](Plan& p) { p.overlap.all_reduce = "none"; }), HasSubstr("overlap.all_reduce = none"));
  EXPECT_THAT(
      refused([](Plan& p) { p.optimizer.clip_norm = 1.0; }),
      HasSubstr("mesh.placement = pyramid and optimizer.clip_norm = 1: stages are updated one after the other,"));
  EXPECT_THAT(refused([](Plan& p) { p.schedule.shift = "paced"; }),
              HasSubstr("mesh.placement = pyramid and schedule.shift = paced, which is a distance of whole replicas,"));
  EXPECT_THAT(refused([](Plan& p) { p.schedule.updater = "first_user"; }),
              HasSubstr("mesh.placement = pyramid and schedule.optimizer = first_user, where it is settled who"));
  EXPECT_THAT(
      refused([](Plan& p) { p.global_batch = p.schedule.micro_batches = 6; }),
      HasSubstr("mesh.placement = pyramid with 6 micro-batches and 3 stages, where it stands on 6 ranks for 3 of "
                "each,"));
  EXPECT_THAT(refused([](Plan& p) {
                p.schedule.kind = ScheduleKind::gpipe;
                p.schedule.fresh = "none";
              }),
              HasSubstr("mesh.placement = pyramid with schedule.kind = gpipe"));
  const Plan large = pyramid_plan(11, "v2");
  EXPECT_THAT(lowering_refusal(large, equal_layers(11)),
              HasSubstr("pyramid of 11 stages, whose replicas take the same micro-batches again after more than 512 "
                        "training steps,"));
  const auto invalid = [&](const auto& ask) -> std::string {
    Plan plan = pyramid_plan(3, "v2");
    ask(plan);
    try {
      verify(plan, graph);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(invalid([](Plan& p) { p.mesh.ranks_per_node = 5; }),
              HasSubstr("3 stages in a pyramid take 3 x 4 / 2 ranks, but 1 nodes x 5 ranks = 5"));
  EXPECT_THAT(invalid([](Plan& p) {
                p.mesh.axes.push_back({"data", 2});
              }),
              HasSubstr("data 2 beside mesh.placement \"pyramid\"; accepted: stage alone"));
}

}  // namespace
}  // namespace strata::test_pyramid_lowering
