/// @file
/// Groups that take several nodes, under one leaf switch or under several: what crosses the spine of a scattered
/// allocation, and what that takes (AMSP, fig. 10).

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "sim/simulate.hpp"

namespace strata::test_leaf_placement {
namespace {

constexpr int ranks_per_node = 2;

/// Leaves of 4 nodes under a spine of a quarter of their bandwidth.
Cluster leaf_spine() {
  Cluster cluster;
  cluster.name = "leaf-spine";
  cluster.nodes = 16;
  cluster.devices_per_node = ranks_per_node;
  cluster.peak_flops_per_second = {{"bf16", 300e12}, {"f32", 20e12}};
  cluster.memory_bandwidth_bytes_per_second = 2e12;
  cluster.intra_node = {.latency_seconds = 1e-6, .bandwidth_bytes_per_second = 200e9};
  cluster.inter_node = {.latency_seconds = 5e-6, .bandwidth_bytes_per_second = 20e9};
  cluster.nodes_per_leaf = 4;
  cluster.spine_oversubscription = 4.0;
  return cluster;
}

/// Eight nodes of three leaves, as a busy scheduler hands them out.
const std::vector<int> scattered = {0, 5, 9, 1, 6, 2, 10, 3};

Plan placed(const ModelGraph& graph, const char* mode, const char* placement,
            std::map<std::string, OptionValue> options) {
  const Cluster cluster = leaf_spine();
  Plan base;
  base.strategy = mode;
  base.mesh = {.nodes = 8, .ranks_per_node = ranks_per_node, .axes = {}};
  base.global_batch = 16;
  base.dtypes = {DType::bf16, DType::bf16};
  const Planner& planner = find_planner(mode);
  options["placement"] = std::string(placement);
  for (const OptionRow& row : planner.options()) options.try_emplace(std::string(row.name), row.default_value);
  return planner.plan({.graph = graph,
                       .cluster = cluster,
                       .base = base,
                       .options = options,
                       .leaf_of_node = leaves_of(cluster, scattered)});
}

std::vector<Program> programs_of(const Plan& plan, const ModelGraph& graph) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    programs.push_back(lower(plan, graph, rank, [](const Program&, const Instruction&) { return 0; }));
  }
  return programs;
}

/// Bytes that all ranks send in groups under more than one leaf.
std::int64_t bytes_across_the_spine(const std::vector<Program>& programs) {
  const std::vector<int> leaf_of_node = leaves_of(leaf_spine(), scattered);
  std::int64_t sum = 0;
  for (const Program& program : programs) {
    for (const Instruction& in : program.body) {
      if (!in.is_collective()) continue;
      const std::vector<int>& ranks = program.groups[static_cast<std::size_t>(in.group)].ranks;
      if (placement(ranks, ranks_per_node, leaf_of_node).leaves > 1) sum += bytes_sent(program, in);
    }
  }
  return sum;
}

double step_seconds(const std::vector<Program>& programs) {
  Job job = unfolded(programs, ranks_per_node);
  job.leaf_of_node = leaves_of(leaf_spine(), scattered);
  const SimulationResult result = simulate(job, *analytic_costs(leaf_spine()));
  double longest = 0.0;
  for (const SimulatedStep& step : result.steps[0]) longest = std::max(longest, step.step_seconds);
  return longest;
}

TEST(LeafPlacement, AGroupKnowsItsLeaves) {
  const std::vector<int> leaves = leaves_of(leaf_spine(), scattered);
  EXPECT_EQ(leaves, (std::vector<int>{0, 1, 2, 0, 1, 0, 2, 0}));
  const auto under = [&](std::vector<int> ranks) { return placement(ranks, ranks_per_node, leaves).leaves; };
  EXPECT_EQ(under({0, 1}), 1);        // one node
  EXPECT_EQ(under({0, 6, 10}), 1);    // nodes 0, 3 and 5 of the job
  EXPECT_EQ(under({0, 1, 2, 3}), 2);  // nodes 0 and 1
  EXPECT_EQ(under({0, 2, 4}), 3);
  EXPECT_EQ(placement(std::vector<int>{0, 2}, ranks_per_node).leaves, 0);  // nobody said
}

TEST(LeafPlacement, TheSpineIsChargedToGroupsThatCrossIt) {
  const std::unique_ptr<CostModel> costs = analytic_costs(leaf_spine());
  const auto seconds = [&](int leaves) {
    return costs->collective(Collective::all_gather, 1 << 28, {.shape = {2, 2}, .leaves = leaves}).seconds;
  };
  EXPECT_GT(seconds(2), 3.0 * seconds(1));
  EXPECT_EQ(seconds(0), seconds(1));  // two nodes fit under a leaf of four
}

struct Case {
  const char* mode;
  std::map<std::string, OptionValue> options;
  bool is_faster = true;  ///< some group that crosses is enough to slow a step
};

std::int64_t bytes_sent_by_all(const std::vector<Program>& programs) {
  std::int64_t sum = 0;
  for (const Program& program : programs) sum += bytes_by_collective(program).total();
  return sum;
}

TEST(LeafPlacement, LeafFirstCrossesTheSpineLessAndTakesLessTime) {
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const Case cases[] = {
      {"mics", {{"group", std::string("2x2")}}},
      {"mics", {{"group", std::string("2x4")}}, false},  // leaves of 4, 2 and 2 nodes: one group has two
      {"zeropp", {{"secondary", std::string("2x2")}}},
      {"amsp", {{"p", std::string("2x2")}, {"g", std::string("2x2")}, {"os", std::string("2x4")}}},
  };
  for (const Case& c : cases) {
    const std::vector<Program> block = programs_of(placed(graph, c.mode, "block", c.options), graph);
    const std::vector<Program> leaf_first = programs_of(placed(graph, c.mode, "leaf-first", c.options), graph);
    EXPECT_NO_THROW(verify(leaf_first)) << c.mode;
    EXPECT_LT(bytes_across_the_spine(leaf_first), bytes_across_the_spine(block)) << c.mode;
    if (c.is_faster) {
      EXPECT_LT(step_seconds(leaf_first), step_seconds(block)) << c.mode;
    } else {
      EXPECT_EQ(step_seconds(leaf_first), step_seconds(block)) << c.mode;
    }
    EXPECT_EQ(bytes_sent_by_all(leaf_first), bytes_sent_by_all(block)) << c.mode;
  }
}

/// Pairs of nodes: 0 and 3, 5 and 7 under leaf 0, 1 and 4 under leaf 1, 2 and 6 under leaf 2; none is mixed.
TEST(LeafPlacement, NoPairOfNodesCrossesWhereLeavesHoldEvenNumbers) {
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  const Plan plan = placed(graph, "mics", "leaf-first", {{"group", std::string("2x2")}});
  EXPECT_EQ(plan.mesh.node_order, (std::vector<int>{0, 3, 5, 7, 1, 4, 2, 6}));
  const std::vector<int> leaves = leaves_of(leaf_spine(), scattered);
  for (const Program& program : programs_of(plan, graph)) {
    for (const Instruction& in : program.body) {
      if (!in.is_collective() || in.collective != Collective::all_gather) continue;
      const std::vector<int>& ranks = program.groups[static_cast<std::size_t>(in.group)].ranks;
      EXPECT_EQ(placement(ranks, ranks_per_node, leaves).leaves, 1);
    }
  }
}

/// Ranks whose groups cross the spine are not those whose groups do not: classes of ranks simulate as all ranks do.
TEST(LeafPlacement, FoldedJobsTakeAsLong) {
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  const std::vector<int> leaves = leaves_of(leaf_spine(), scattered);
  for (const char* word : {"block", "leaf-first"}) {
    const Plan plan = placed(graph, "mics", word, {{"group", std::string("2x4")}});
    const std::vector<Program> all = programs_of(plan, graph);
    const RankClasses classes = rank_classes(plan, graph, leaves);
    EXPECT_LT(classes.representatives.size(), all.size()) << word;
    Job job{.programs = {},
            .class_of_rank = classes.class_of_rank,
            .ranks_per_node = ranks_per_node,
            .leaf_of_node = leaves};
    for (const int rank : classes.representatives) job.programs.push_back(&all[static_cast<std::size_t>(rank)]);
    const SimulationResult folded = simulate(job, *analytic_costs(leaf_spine()));
    double longest = 0.0;
    for (const SimulatedStep& step : folded.steps[0]) longest = std::max(longest, step.step_seconds);
    EXPECT_DOUBLE_EQ(longest, step_seconds(all)) << word;
  }
}

}  // namespace
}  // namespace strata::test_leaf_placement
