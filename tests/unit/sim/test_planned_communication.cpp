/// @file
/// What the layout modes predict of communication against the simulator, on nodes of several devices: every layout of a
/// transformer, near and in the same order.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "models/model.hpp"
#include "planners/layouts/candidates.hpp"
#include "planners/planner.hpp"
#include "sim/simulate.hpp"
#include "support/rank_correlation.hpp"

namespace strata::test_planned_communication {
namespace {

/// Two servers with fast links inside and @p nics cards between them.
Cluster servers(int nics) {
  Cluster cluster;
  cluster.name = "two-servers";
  cluster.nodes = 2;
  cluster.devices_per_node = 8;
  cluster.peak_flops_per_second = {{"bf16", 312e12}, {"f32", 19.5e12}};
  cluster.memory_bandwidth_bytes_per_second = 1.5e12;
  cluster.intra_node = {.latency_seconds = 4e-6, .bandwidth_bytes_per_second = 230e9};
  cluster.inter_node = {.latency_seconds = 3e-5, .bandwidth_bytes_per_second = 9e9};
  cluster.nics_per_node = nics;
  return cluster;
}

struct Communication {
  std::string layout;
  double predicted = 0.0, simulated = 0.0;  ///< seconds a step
};

/// Of collectives one after the other, as planners add them up: gradients are summed behind backward.
double simulated_seconds(Plan plan, const ModelGraph& graph, const CostModel& costs) {
  plan.overlap.all_reduce = "none";
  const RankClasses classes = rank_classes(plan, graph);
  std::vector<Program> programs;
  for (const int rank : classes.representatives) {
    programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; }));
  }
  Job job{.programs = {}, .class_of_rank = classes.class_of_rank, .ranks_per_node = plan.mesh.ranks_per_node};
  for (const Program& program : programs) job.programs.push_back(&program);
  const SimulationResult result = simulate(job, costs);
  double most = 0.0;
  for (const SimulatedStep& step : result.steps[0]) most = std::max(most, step.communication_seconds);
  return most;
}

/// Of every layout that the model can have, all layers alike.
std::vector<Communication> of_all_layouts(const Cluster& cluster, const std::string& cost) {
  const ModelGraph graph = build_model({.name = "gpt",
                                        .layers = 2,
                                        .hidden = 4096,
                                        .heads = 32,
                                        .vocabulary = 16384,
                                        .sequence_length = 1024,
                                        .tied_head = false});
  const Planner& planner = find_planner("autoddl");
  Plan base;
  base.strategy = "autoddl";
  base.mesh = {.nodes = 2, .ranks_per_node = 8, .axes = {}};
  base.global_batch = 64;
  base.dtypes = {DType::bf16, DType::bf16};
  const auto costs = analytic_costs(cluster);
  std::vector<Communication> all;
  for (const Layout& layout : all_layouts({8, 2})) {
    const std::string words = fmt::format("{},{},{}", to_string(layout.p0), to_string(layout.p1), to_string(layout.p2));
    std::map<std::string, OptionValue> options{{"layout", words}, {"cost", cost}};
    for (const OptionRow& row : planner.options()) options.try_emplace(std::string(row.name), row.default_value);
    const Plan plan = planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = options});
    all.push_back({words, plan.why.predicted_seconds, simulated_seconds(plan, graph, *costs)});
  }
  return all;
}

/// Of what is predicted and what is simulated.
double rank_correlation(const std::vector<Communication>& all) {
  std::vector<double> predicted, simulated;
  for (const Communication& one : all) {
    predicted.push_back(one.predicted);
    simulated.push_back(one.simulated);
  }
  return strata::rank_correlation(predicted, simulated);
}

TEST(PlannedCommunication, OfEveryLayoutIsTheSimulatorsOnTwoServers) {
  for (const int nics : {1, 4}) {
    const std::vector<Communication> all = of_all_layouts(servers(nics), "analytic");
    ASSERT_EQ(all.size(), 30U);
    for (const Communication& c : all) {
      EXPECT_NEAR(c.predicted, c.simulated, 0.05 * c.simulated) << c.layout << ", " << nics << " cards";
    }
    EXPECT_GT(rank_correlation(all), 0.99) << nics << " cards";
    // One ring through all devices, as the paper prices them, is another order.
    EXPECT_LT(rank_correlation(of_all_layouts(servers(nics), "paper")), rank_correlation(all));
  }
}

}  // namespace
}  // namespace strata::test_planned_communication
