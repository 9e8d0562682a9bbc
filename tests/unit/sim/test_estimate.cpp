/// @file
/// The closed form against the simulator: equal where nothing changes speed on the way, near where something does.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "sim/estimate.hpp"
#include "unit/ir/program/handmade_program.hpp"
#include "unit/sim/fixed_costs.hpp"

namespace strata {
namespace {

using test::FixedCosts;
using testing::HasSubstr;
using testing::ThrowsMessage;

void expect_equal(const SimulationResult& estimated, const SimulationResult& simulated) {
  ASSERT_EQ(estimated.steps.size(), simulated.steps.size());
  EXPECT_EQ(estimated.num_events, simulated.num_events);
  EXPECT_EQ(estimated.seconds_by_basis, simulated.seconds_by_basis);
  EXPECT_TRUE(estimated.events.empty());
  for (std::size_t s = 0; s < estimated.steps.size(); ++s) {
    for (std::size_t c = 0; c < estimated.steps[s].size(); ++c) {
      const SimulatedStep& e = estimated.steps[s][c];
      const SimulatedStep& r = simulated.steps[s][c];
      EXPECT_NEAR(e.step_seconds, r.step_seconds, 1e-9 * r.step_seconds) << "step " << s << " class " << c;
      EXPECT_NEAR(e.compute_seconds, r.compute_seconds, 1e-9 * r.step_seconds);
      EXPECT_NEAR(e.communication_seconds, r.communication_seconds, 1e-9 * r.step_seconds);
      EXPECT_NEAR(e.exposed_seconds, r.exposed_seconds, 1e-9 * r.step_seconds);
    }
  }
}

/// n times a kernel and the all-reduce of what it made; a last kernel waits for all. With @p lag, the first kernel
/// waits for the last all-reduce of so many steps ago.
Program layered(int rank, int num_ranks, int num_layers, int lag = 0) {
  Handmade h(rank, num_ranks);
  std::vector<int> ranks;
  for (int r = 0; r < num_ranks; ++r) ranks.push_back(r);
  const int group = h.group("data", ranks);
  std::vector<Wait> reduces;
  for (int l = 0; l < num_layers; ++l) {
    const int gradient = h.buffer("g" + std::to_string(l), 1024);
    Instruction& backward = h.kernel(compute, -1, gradient, "backward");
    if (lag > 0 && l == 0) backward.waits = {{2 * num_layers - 1, lag}};
    h.collective(Collective::all_reduce, group, gradient, "bucket").waits = {{2 * l, 0}};
    reduces.push_back({2 * l + 1, 0});
  }
  if (lag == 0) h.kernel(compute, 0, 0, "update").waits = reduces;
  return h.program;
}

std::vector<Program> layered_job(int num_ranks, int num_layers, int lag = 0) {
  std::vector<Program> programs;
  for (int r = 0; r < num_ranks; ++r) programs.push_back(layered(r, num_ranks, num_layers, lag));
  return programs;
}

FixedCosts layer_costs(double backward, double all_reduce, double update) {
  FixedCosts costs(2);
  costs.kernels = {{"backward", backward}, {"update", update}};
  costs.collectives = {{Collective::all_reduce, all_reduce}};
  return costs;
}

TEST(Estimate, EqualsTheSimulatorWhereSpeedsAreConstant) {
  for (const auto& [backward, reduce] : {std::pair{2.0, 1.0}, {1.0, 2.0}, {1.0, 0.0}}) {
    const FixedCosts costs = layer_costs(backward, reduce, 0.5);
    for (const int ranks_per_node : {8, 2}) {
      const std::vector<Program> programs = layered_job(4, 6);
      const Job job = unfolded(programs, ranks_per_node);
      for (const bool in_list_order : {false, true}) {
        const SimulationOptions options{.num_steps = 3, .issue_in_list_order = in_list_order};
        expect_equal(estimate(job, costs, options),
                     simulate(job, costs, {options.num_steps, in_list_order, 0.0, 1, {}, false}));
      }
    }
  }
}

TEST(Estimate, ExposesWhatDoesNotFitUnderCompute) {
  const std::vector<Program> programs = layered_job(4, 6);
  const SimulatedStep step = estimate(unfolded(programs, 8), layer_costs(2.0, 1.0, 0.5)).steps[0][0];
  EXPECT_DOUBLE_EQ(step.step_seconds, 6 * 2.0 + 1.0 + 0.5);
  EXPECT_DOUBLE_EQ(step.exposed_seconds, 1.0);
  EXPECT_DOUBLE_EQ(step.communication_seconds, 6.0);
}

TEST(Estimate, FollowsStragglersAndWaitsAcrossSteps) {
  const std::vector<Program> programs = layered_job(3, 2);
  const SimulationOptions slow{.stragglers = {{1, 4.0}}, .keeps_events = false};
  const FixedCosts costs = layer_costs(1.0, 0.25, 0.5);
  expect_equal(estimate(unfolded(programs, 8), costs, slow), simulate(unfolded(programs, 8), costs, slow));
  for (const int lag : {1, 2, 3}) {
    const std::vector<Program> across = layered_job(2, 2, lag);
    for (const double reduce : {0.25, 1.5}) {
      const SimulationOptions several{.num_steps = 6, .keeps_events = false};
      const FixedCosts times = layer_costs(1.0, reduce, 0.0);
      expect_equal(estimate(unfolded(across, 8), times, several), simulate(unfolded(across, 8), times, several));
    }
  }
}

TEST(Estimate, InterferenceIsNearTheSimulators) {
  const std::vector<Program> programs = layered_job(2, 20);
  for (const double reduce : {0.3, 0.9, 1.5, 3.0}) {
    FixedCosts costs = layer_costs(1.0, reduce, 0.5);
    costs.slow = {.compute = 1.3, .communication = 1.6};
    const double simulated = simulate(unfolded(programs, 8), costs).steps[0][0].step_seconds;
    const double estimated = estimate(unfolded(programs, 8), costs).steps[0][0].step_seconds;
    EXPECT_NEAR(estimated / simulated, 1.0, 0.05) << reduce;
    costs.slow = {};
    EXPECT_GT(estimated, estimate(unfolded(programs, 8), costs).steps[0][0].step_seconds * 1.02) << reduce;
  }
}

TEST(Estimate, WhatHasNoClosedFormIsRefused) {
  const std::vector<Program> programs = layered_job(2, 2);
  const FixedCosts costs = layer_costs(1.0, 1.0, 1.0);
  EXPECT_THAT([&] { estimate(unfolded(programs, 8), costs, {.noise = 0.1}); },
              ThrowsMessage<UserError>(HasSubstr("noise")));
  const Job folded{.programs = {&programs[0]}, .class_of_rank = {0, 0}, .ranks_per_node = 2};
  EXPECT_THAT(
      [&] {
        estimate(folded, costs, {.stragglers = {{1, 2.0}}});
      },
      ThrowsMessage<UserError>(HasSubstr("2 ranks are folded into 1 classes")));
}

TEST(Estimate, ADeadlockIsNamed) {
  std::vector<Program> programs = layered_job(2, 1);
  programs[1].groups[0].name = "other";
  EXPECT_THAT([&] { estimate(unfolded(programs, 8), layer_costs(1.0, 1.0, 1.0)); },
              ThrowsMessage<InternalError>(HasSubstr("rank 0 never gets past #1 bucket")));
}

std::int64_t no_workspace(const Program&, const Instruction&) { return 0; }

Cluster described(int nodes, int devices) {
  Cluster cluster;
  cluster.name = "described";
  cluster.nodes = nodes;
  cluster.devices_per_node = devices;
  cluster.peak_flops_per_second = {{"f32", 1e13}, {"bf16", 1e14}};
  cluster.memory_bandwidth_bytes_per_second = 1e12;
  cluster.intra_node = {3e-6, 2e11};
  cluster.inter_node = {1e-5, 2.5e10};
  cluster.nics_per_node = devices > 1 ? 2 : 1;
  return cluster;
}

TEST(Estimate, EveryModeIsNearItsSimulation) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4});
  int num_compared = 0;
  for (const Planner* planner : all_planners()) {
    for (const auto& [nodes, per_node] : {std::pair{1, 4}, {2, 4}, {4, 2}, {8, 4}}) {
      const Cluster cluster = described(nodes, per_node);
      Plan base;
      base.strategy = planner->name();
      base.mesh.nodes = nodes;
      base.mesh.ranks_per_node = per_node;
      base.global_batch = 288;
      base.schedule.micro_batches = 3;
      base.overlap.bucket_bytes = 100'000;
      std::map<std::string, OptionValue> options;
      for (const OptionRow& row : planner->options()) {
        options.emplace(row.name, row.name == "stages" ? OptionValue(std::int64_t{4}) : row.default_value);
      }
      Plan plan;
      try {
        plan = planner->plan({.graph = graph, .cluster = cluster, .base = base, .options = options});
      } catch (const Unsupported&) {
        continue;  // single on several ranks
      }
      const RankClasses classes = rank_classes(plan, graph);
      std::vector<Program> programs;
      for (const int rank : classes.representatives) programs.push_back(lower(plan, graph, rank, no_workspace));
      Job job{.programs = {}, .class_of_rank = classes.class_of_rank, .ranks_per_node = per_node};
      for (const Program& program : programs) job.programs.push_back(&program);
      const auto costs = analytic_costs(cluster);
      const SimulationResult simulated = simulate(job, *costs);
      const SimulationResult estimated = estimate(job, *costs);
      for (std::size_t c = 0; c < classes.representatives.size(); ++c) {
        EXPECT_NEAR(estimated.steps[0][c].step_seconds / simulated.steps[0][c].step_seconds, 1.0, 0.02)
            << fmt::format("{} on {} × {}, class {}", plan.strategy, nodes, per_node, c);
      }
      ++num_compared;
    }
  }
  EXPECT_GE(num_compared, 12);
}

}  // namespace
}  // namespace strata
