/// @file
/// Every mode lowered for many models, rank counts and options: verified, and equal to the formulas of its docstring.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "lower/lower.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"

namespace strata {
namespace {

std::int64_t no_workspace(const Program&, const Instruction&) { return 0; }
std::int64_t some_workspace(const Program&, const Instruction&) { return 1000; }

Plan asked(std::int64_t global_batch, int ranks) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.mesh.ranks_per_node = ranks;
  return plan;
}

Plan planned(const Planner& planner, const ModelGraph& graph, Plan base) {
  base.strategy = planner.name();
  const Cluster cluster;
  return planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = {}});
}

std::vector<Program> all_ranks(const Plan& plan, const ModelGraph& graph, const WorkspaceBytes& workspace) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) programs.push_back(lower(plan, graph, rank, workspace));
  return programs;
}

std::vector<ModelGraph> models() {
  return {build_model({.name = "gpt-nano", .dropout = 0.1}), build_model({.name = "llama-nano"}),
          build_model({.name = "vgg-nano"}), build_model({.name = "mlp-tiny"})};
}

TEST(Lower, EveryModeOfEveryModelVerifiesOnAllRanks) {
  int lowered = 0;
  for (const Planner* planner : all_planners()) {
    for (const ModelGraph& graph : models()) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        if (planner->name() == "single" && ranks > 1) continue;
        for (const int micro_batches : {1, 3}) {
          for (const Recompute recompute : {Recompute::none, Recompute::block}) {
            for (const DType dtype : {DType::f32, DType::bf16}) {
              Plan base = asked(24 * micro_batches, ranks);
              base.schedule.micro_batches = micro_batches;
              base.recompute = recompute;
              base.dtypes = {dtype, dtype};
              base.optimizer.clip_norm = micro_batches == 1 ? 0.0 : 1.0;
              base.optimizer.kind = dtype == DType::f32 ? "sgd" : "adamw";
              base.overlap.all_reduce = recompute == Recompute::none ? "backward" : "none";
              base.overlap.bucket_bytes = 1 << (10 + ranks);
              const Plan plan = planned(*planner, graph, base);
              const std::vector<Program> programs = all_ranks(plan, graph, some_workspace);
              EXPECT_NO_THROW(verify(programs)) << planner->name() << " " << graph.name << " on " << ranks;
              for (const Program& program : programs) {
                EXPECT_EQ(parse_program(to_text(program)), program);
                EXPECT_GE(program.arena_bytes, memory_peak(program).total_bytes);
              }
              ++lowered;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(lowered, (1 + 5) * 4 * 2 * 2 * 2);
}

TEST(Lower, DdpSendsWhatItsDocstringSays) {
  for (const ModelGraph& graph : models()) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const DType gradient : {DType::f32, DType::bf16}) {
        Plan base = asked(24, ranks);
        base.dtypes = {DType::bf16, gradient};
        const Plan plan = planned(find_planner("ddp"), graph, base);
        std::int64_t total = 0;
        for (const Program& program : all_ranks(plan, graph, no_workspace)) {
          total += bytes_by_collective(program)[Collective::all_reduce];
        }
        // Over all ranks 2 (N-1) P g, and the same for the one number of the loss, whatever divides what.
        EXPECT_EQ(total, 2 * (ranks - 1) * (graph.num_parameters() * size_of(gradient) + 4)) << graph.name;
      }
    }
  }
}

TEST(Lower, StatesTakeWhatTheDocstringsSay) {
  for (const ModelGraph& graph : models()) {
    const std::int64_t parameters = graph.num_parameters();
    for (const auto& [mode, ranks] : {std::pair{"single", 1}, {"ddp", 4}}) {
      Plan base = asked(24, ranks);
      base.optimizer.kind = "adamw";
      const Program full = lower(planned(find_planner(mode), graph, base), graph, 0, no_workspace);
      base.dtypes = {DType::bf16, DType::bf16};
      const Program mixed = lower(planned(find_planner(mode), graph, base), graph, 0, no_workspace);
      std::int64_t bytes[2][num_categories] = {};
      for (const auto& [program, into] : {std::pair{&full, bytes[0]}, {&mixed, bytes[1]}}) {
        for (const Buffer& buffer : program->buffers) {
          if (buffer.persistent || buffer.category == Category::gradient) {
            into[static_cast<int>(buffer.category)] += buffer.size_bytes();
          }
        }
      }
      const int p = static_cast<int>(Category::parameter);
      const int g = static_cast<int>(Category::gradient);
      const int o = static_cast<int>(Category::optimizer);
      EXPECT_EQ(bytes[0][p], 4 * parameters);
      EXPECT_EQ(bytes[0][g], 4 * parameters);
      EXPECT_EQ(bytes[0][o], 8 * parameters);
      EXPECT_EQ(bytes[1][p], 2 * parameters);
      EXPECT_EQ(bytes[1][g], 2 * parameters);
      EXPECT_EQ(bytes[1][o], 12 * parameters);
    }
  }
}

TEST(Lower, BucketsAreReducedUnderBackwardOrAfterIt) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  for (const std::string_view when : {"backward", "none"}) {
    Plan base = asked(8, 2);
    base.overlap.bucket_bytes = 50'000;
    base.overlap.all_reduce = when;
    const Program program = lower(planned(find_planner("ddp"), graph, base), graph, 0, no_workspace);
    std::size_t last_backward = 0;
    std::vector<std::size_t> reductions;
    for (std::size_t i = 0; i < program.body.size(); ++i) {
      if (program.body[i].phase == Phase::backward) last_backward = i;
      if (program.body[i].is_collective() && program.body[i].phase == Phase::reduce) reductions.push_back(i);
    }
    ASSERT_GE(reductions.size(), 4U);
    if (when == "backward") {
      // Only those that the very last kernel, the embedding's, completes can come after it.
      EXPECT_LT(reductions[reductions.size() - 3], last_backward);
    } else {
      EXPECT_GT(reductions.front(), last_backward);
    }
  }
}

TEST(Lower, BucketSizesHoldAtLeastWhatWasAsked) {
  const ModelGraph graph = build_model({.name = "llama-nano"});
  for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{20'000}, std::int64_t{1} << 30}) {
    Plan base = asked(8, 2);
    base.overlap.bucket_bytes = bucket_bytes;
    const Program program = lower(planned(find_planner("ddp"), graph, base), graph, 0, no_workspace);
    std::int64_t total = 0;
    int buckets = 0;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.category != Category::gradient) continue;
      total += buffer.num_elements;
      ++buckets;
    }
    EXPECT_EQ(total, graph.num_parameters());
    if (bucket_bytes == 1) {
      EXPECT_EQ(buckets, static_cast<int>(graph.parameters.size()));
    }
    if (bucket_bytes == std::int64_t{1} << 30) {
      EXPECT_EQ(buckets, 1);
    }
  }
}

TEST(Lower, RecomputationTradesActivationsForKernels) {
  const ModelGraph graph = build_model({.name = "gpt-micro"});
  Plan plan = planned(find_planner("single"), graph, asked(4, 1));
  const Program kept = lower(plan, graph, 0, no_workspace);
  plan.recompute = Recompute::block;
  const Program again = lower(plan, graph, 0, no_workspace);
  const auto activations = [](const Program& program) {
    return memory_peak(program).bytes[static_cast<int>(Category::activation)];
  };
  EXPECT_LT(activations(again), activations(kept) / 2);
  EXPECT_GT(flops_per_step(again), 1.2 * flops_per_step(kept));
  EXPECT_LT(flops_per_step(again), 1.4 * flops_per_step(kept));
}

TEST(Lower, ProgramFlopsEqualTheGraphs) {
  for (const ModelGraph& graph : models()) {
    const Program program = lower(planned(find_planner("single"), graph, asked(6, 1)), graph, 0, no_workspace);
    double products = 0.0;
    for (const Instruction& in : program.body) {
      if (in.kernel == Kernel::linear_forward || in.kernel == Kernel::linear_backward_input ||
          in.kernel == Kernel::linear_backward_weight) {
        products += flops(in);
      }
    }
    double expected = 0.0;
    for (const Operator& op : graph.operators) {
      if (op.kind == OperatorKind::linear) expected += forward_flops(graph, op, 6) + backward_flops(graph, op, 6);
    }
    EXPECT_DOUBLE_EQ(products, expected) << graph.name;
  }
}

TEST(Lower, WhatAPlanMayAskAndLoweringCannotDoIsRefusedByName) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const Plan good = planned(find_planner("ddp"), graph, asked(8, 4));
  const auto message = [&](const Plan& plan) -> std::string {
    try {
      lower(plan, graph, 0, no_workspace);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "not refused";
  };
  Plan tensor = good;
  tensor.mesh.axes = {{"data", 2}, {"tensor", 2}};
  EXPECT_NE(message(tensor).find("mesh axis tensor = 2"), std::string::npos) << message(tensor);
  Plan staged = good;
  staged.schedule.kind = ScheduleKind::one_forward_one_backward;
  EXPECT_NE(message(staged).find("schedule.kind = 1f1b"), std::string::npos) << message(staged);
  Plan sharded = good;
  sharded.operators = {{.match = "*", .state = StateFactors{.p = {1, 1}, .g = {1, 1}, .os = {4, 1}}}};
  EXPECT_NE(message(sharded).find("state os = 4x1"), std::string::npos) << message(sharded);
  Plan split = good;
  split.operators = {{.match = "*.mlp.fc1", .slices = 4}};
  EXPECT_NE(message(split).find("slices = 4"), std::string::npos) << message(split);
}

TEST(Lower, CapacityIsAskedOfTheProgram) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const Program program = lower(planned(find_planner("single"), graph, asked(8, 1)), graph, 0, no_workspace);
  EXPECT_NO_THROW(check_capacity(program, 0));
  EXPECT_NO_THROW(check_capacity(program, program.arena_bytes));
  try {
    check_capacity(program, program.arena_bytes - 1);
    FAIL() << "one byte too few must be refused";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("needs"), std::string::npos) << error.what();
  }
}

/// The whole step of one small network, as a person reads it. STRATA_UPDATE_GOLDEN=1 accepts the present text.
TEST(Lower, GoldenPrograms) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {6, 4, 3}});
  for (const auto& [mode, ranks] : {std::pair{"single", 1}, {"ddp", 4}}) {
    Plan base = asked(8, ranks);
    base.optimizer.kind = "sgd";
    base.overlap.bucket_bytes = 100;
    const Program program = lower(planned(find_planner(mode), graph, base), graph, ranks > 1 ? 1 : 0, no_workspace);
    const std::string path =
        fmt::format("{}/tests/golden/{}.mlp.np{}.rank{}.txt", STRATA_SOURCE_DIR, mode, ranks, program.rank);
    if (std::getenv("STRATA_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << to_text(program);
    }
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    std::ostringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(to_text(program), golden.str()) << path;
  }
}

}  // namespace
}  // namespace strata
