/// @file
/// Equal ranks simulated once give what all ranks give, to the last bit; lowered Programs on a described cluster.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "lower/lower.hpp"
#include "lower/rank_classes.hpp"
#include "models/model.hpp"
#include "partition/shards.hpp"
#include "planners/layouts/candidates.hpp"
#include "planners/planner.hpp"
#include "sim/simulate.hpp"
#include "support/no_workspace.hpp"

namespace strata::test_folding {
namespace {

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

void expect_folding_changes_nothing(const Plan& plan, const ModelGraph& graph, const CostModel& costs) {
  const RankClasses classes = rank_classes(plan, graph);
  std::vector<Program> some;
  for (const int rank : classes.representatives) some.push_back(lower(plan, graph, rank, no_workspace));
  Job folded{.programs = {}, .class_of_rank = classes.class_of_rank, .ranks_per_node = plan.mesh.ranks_per_node};
  for (const Program& program : some) folded.programs.push_back(&program);
  std::vector<Program> all;
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) all.push_back(lower(plan, graph, rank, no_workspace));
  const SimulationResult once = simulate(folded, costs);
  const SimulationResult each = simulate(unfolded(all, plan.mesh.ranks_per_node), costs);
  for (int rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    const int c = classes.class_of_rank[static_cast<std::size_t>(rank)];
    const SimulatedStep& a = once.steps[0][static_cast<std::size_t>(c)];
    const SimulatedStep& b = each.steps[0][static_cast<std::size_t>(rank)];
    // Of ranks with one partial sum one reads a bias: which does is an operand, not a class, and the others wait for
    // it.
    const double slack = has_layouts(plan.mesh) ? 1e-3 : 0.0;
    EXPECT_NEAR(a.step_seconds, b.step_seconds, 1e-3 * slack * b.step_seconds) << "rank " << rank;
    EXPECT_NEAR(a.compute_seconds, b.compute_seconds, slack * b.compute_seconds) << "rank " << rank;
    EXPECT_NEAR(a.communication_seconds, b.communication_seconds, slack * b.communication_seconds) << "rank " << rank;
  }
}

/// What @p planner decides where its option `stages`, if it has one, is @p stages (0: its default), and `tensor` is
/// @p tensor (empty: its default).
Plan planned(const Planner& planner, const ModelGraph& graph, const Cluster& cluster, std::int64_t stages,
             const std::string& tensor = "") {
  Plan base;
  base.strategy = planner.name();
  base.mesh.nodes = cluster.nodes;
  base.mesh.ranks_per_node = cluster.devices_per_node;
  base.global_batch = 288;
  base.schedule.micro_batches = 3;
  base.overlap.bucket_bytes = 100'000;
  std::map<std::string, OptionValue> options;
  for (const OptionRow& row : planner.options()) {
    options.emplace(row.name, row.name == "stages" && stages > 0 ? OptionValue(stages) : row.default_value);
  }
  if (!tensor.empty()) options["tensor"] = tensor;
  return planner.plan({.graph = graph, .cluster = cluster, .base = base, .options = options});
}

TEST(Folding, EveryModeOnSeveralNodes) {
  std::map<std::string, int> folded;
  for (const Planner* planner : all_planners()) {
    // Stages of cyclic modes have versions of their own: no head is tied over them.
    const bool tied = !planner->name().starts_with("cdp");
    const bool has_stages = std::ranges::count(planner->options(), "stages", &OptionRow::name) > 0;
    const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4, .tied_head = tied});
    for (const auto& [nodes, per_node] : {std::pair{1, 4}, {2, 4}, {4, 2}, {3, 1}, {8, 4}}) {
      for (const std::int64_t stages : {0, 2, 4}) {
        if (stages > 0 && !has_stages) continue;
        const Cluster cluster = described(nodes, per_node);
        Plan plan;
        try {
          plan = planned(*planner, graph, cluster, stages);
        } catch (const Unsupported&) {
          continue;  // single on several ranks; more stages than blocks
        }
        SCOPED_TRACE(fmt::format("{} on {} × {}, stages {}", plan.strategy, nodes, per_node, stages));
        expect_folding_changes_nothing(plan, graph, *analytic_costs(cluster));
        if (stages == 0) expect_folding_changes_nothing(plan, graph, *paper_costs(cluster));
        ++folded[plan.strategy];
      }
    }
  }
  EXPECT_EQ(folded["ddp"], 5);
  EXPECT_GE(folded["1f1b"], 8);
}

/// Rings within nodes, across them, and over links of both kinds; blocks of unequal sizes; stages.
TEST(Folding, RingsThatPassBlocksOn) {
  for (const std::int64_t vocabulary : {96, 101}) {
    const ModelGraph graph =
        build_model({.name = "gpt-nano", .layers = 4, .hidden = 96, .heads = 12, .vocabulary = vocabulary});
    for (const auto& [nodes, per_node] : {std::pair{1, 4}, {2, 4}, {4, 2}, {3, 1}, {3, 2}}) {
      const Cluster cluster = described(nodes, per_node);
      for (const Factor& tensor : {Factor{per_node, 1}, Factor{1, nodes}, Factor{per_node, nodes}}) {
        for (const std::int64_t stages : {1, 2}) {
          if (tensor.total() == 1 || stages * tensor.nodes > nodes) continue;
          SCOPED_TRACE(fmt::format("{} words, tensor {} on {} x {}, {} stages", vocabulary, to_string(tensor), nodes,
                                   per_node, stages));
          Plan plan;
          try {
            plan = planned(find_planner("decomposed"), graph, cluster, stages, to_string(tensor));
          } catch (const Unsupported&) {
            continue;  // three nodes in two stages
          }
          for (const auto& costs : {analytic_costs(cluster), paper_costs(cluster)}) {
            expect_folding_changes_nothing(plan, graph, *costs);
          }
        }
      }
    }
  }
}

/// The ranks that hold copies of what a product of @p plan, all of whose products are laid out alike, has.
Factor copies_of_products(const Plan& plan) {
  const auto laid_out =
      std::ranges::find_if(plan.operators, [](const OperatorRule& rule) { return rule.layout.has_value(); });
  return laid_out->layout->p0;
}

/// Cuts the words of @p plan over twice as many ranks of a node as all other products.
void cut_words_over_more(Plan& plan) {
  for (OperatorRule& rule : plan.operators) {
    if (rule.match != "head" && rule.match != "embedding") continue;
    rule.layout->p0.in_node /= 2;
    (rule.match == "head" ? rule.layout->p1 : rule.layout->p2).in_node *= 2;
  }
}

/// 101 words over as many ranks as other products, and over more of them; biases that one rank of each sum gathers;
/// stages. Ranks with parts of one size are one class unless those they wait for differ.
TEST(Folding, WordsThatDoNotDivide) {
  const ModelGraph graph =
      build_model({.name = "gpt-nano", .layers = 4, .hidden = 96, .heads = 12, .vocabulary = 101, .tied_head = false});
  struct Setting {
    int nodes, per_node;
    const char* tensor;
    std::int64_t stages;
  };
  std::size_t num_classes = 0, num_ranks = 0;
  for (const Setting& on : {Setting{1, 4, "2x1", 1},
                            {1, 4, "4x1", 1},
                            {2, 4, "2x1", 1},
                            {2, 4, "4x1", 1},
                            {2, 4, "2x1", 2},
                            {4, 2, "2x1", 1},
                            {4, 2, "2x1", 2},
                            {2, 8, "4x1", 1},
                            {2, 8, "4x1", 2},
                            {3, 4, "4x1", 1}}) {
    const Cluster cluster = described(on.nodes, on.per_node);
    const Plan plain = planned(find_planner("megatron"), graph, cluster, on.stages, on.tensor);
    const Factor copies = copies_of_products(plain);
    for (const PartialSums sum : {PartialSums::scatter, PartialSums::all_reduce}) {
      for (const char* change : {"none", "words over more", "sharded"}) {
        Plan plan = plain;
        for (OperatorRule& rule : plan.operators) rule.sum = sum;
        if (change == std::string_view("words over more")) {
          if (copies.in_node % 2 != 0) continue;
          cut_words_over_more(plan);
        } else if (change == std::string_view("sharded")) {
          plan.operators.insert(plan.operators.begin(),
                                {.match = "*", .state = StateFactors{.p = copies, .g = copies, .os = copies}});
        }
        SCOPED_TRACE(fmt::format("tensor {} on {} x {}, {} stages, {}, {}", on.tensor, on.nodes, on.per_node, on.stages,
                                 to_string(sum), change));
        for (const auto& costs : {analytic_costs(cluster), paper_costs(cluster)}) {
          expect_folding_changes_nothing(plan, graph, *costs);
        }
        num_classes += rank_classes(plan, graph).representatives.size();
        num_ranks += static_cast<std::size_t>(plan.mesh.num_ranks());
      }
    }
  }
  EXPECT_LT(2 * num_classes, num_ranks);
}

/// 101 words over other ranks than what blocks hold, and states shared by two of the ranks that hold a copy each: those
/// whose partner in such a pair holds fewer words than they are a class of their own.
TEST(Folding, WordsThatDoNotDivideAndStatesSharedByPairs) {
  const ModelGraph graph =
      build_model({.name = "gpt-nano", .layers = 2, .hidden = 96, .heads = 12, .vocabulary = 101, .tied_head = false});
  const Cluster cluster = described(2, 4);
  constexpr Factor one{};
  int num_plans = 0;
  for (const Layout& blocks : all_layouts({4, 2})) {
    for (const Layout& words : all_layouts({4, 2})) {
      if (blocks.p2 != one || words.p1 != one || words.p2 == one || blocks.p0 == words.p0) continue;
      for (const Factor& pair : {Factor{2, 1}, Factor{1, 2}}) {
        const auto is_cut = [&](const Factor& copies) {
          return copies.in_node % pair.in_node == 0 && copies.nodes % pair.nodes == 0;
        };
        if (!is_cut(blocks.p0) || !is_cut(words.p0)) continue;
        Plan plan;
        plan.mesh = {.nodes = 2, .ranks_per_node = 4, .axes = {}};
        plan.global_batch = 16;
        plan.operators = {{.match = "*", .state = StateFactors{.p = one, .g = one, .os = pair}, .layout = blocks},
                          {.match = "embedding", .layout = words}};
        SCOPED_TRACE(
            fmt::format("blocks {}, words {}, pairs {}", to_string(blocks), to_string(words), to_string(pair)));
        expect_folding_changes_nothing(plan, graph, *analytic_costs(cluster));
        ++num_plans;
      }
    }
  }
  EXPECT_GE(num_plans, 8);
}

/// Nothing divides: 5 heads, 31 words, 45 and 50 features, 7 samples. What is exchanged and summed is cut unequally.
TEST(Folding, PartsOfUnequalSizes) {
  std::size_t num_classes = 0, num_ranks = 0;
  for (const bool is_tied : {false, true}) {
    const ModelGraph graph = build_model({.name = "gpt",
                                          .layers = 2,
                                          .hidden = 45,
                                          .heads = 5,
                                          .ffn_hidden = 50,
                                          .vocabulary = 31,
                                          .sequence_length = 6,
                                          .tied_head = is_tied});
    for (const auto& [nodes, per_node] : {std::pair{1, 3}, {2, 2}, {2, 3}, {2, 4}}) {
      const Cluster cluster = described(nodes, per_node);
      for (const Layout& layout : all_layouts({per_node, nodes})) {
        const Layout turned{.p0 = layout.p0, .p1 = layout.p2, .p2 = layout.p1};
        Plan plan;
        plan.mesh = {.nodes = nodes, .ranks_per_node = per_node, .axes = {}};
        plan.global_batch = 7;
        plan.operators = {{.match = "*", .layout = layout}, {.match = "head", .layout = turned}};
        SCOPED_TRACE(fmt::format("{} on {} x {}, tied {}", to_string(layout), nodes, per_node, is_tied));
        expect_folding_changes_nothing(plan, graph, *analytic_costs(cluster));
        num_classes += rank_classes(plan, graph).representatives.size();
        num_ranks += static_cast<std::size_t>(plan.mesh.num_ranks());
      }
    }
  }
  EXPECT_LT(num_classes, num_ranks);
}

/// Panels of the inputs, of the outputs and of samples, none of which divides.
TEST(Folding, PanelsOfUnequalSizes) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {10, 45, 50, 31, 7}});
  for (const auto& [nodes, per_node] : {std::pair{1, 4}, {1, 6}, {2, 4}, {2, 6}}) {
    const Cluster cluster = described(nodes, per_node);
    for (const Layout& layout : all_layouts({per_node, nodes})) {
      Plan plan;
      plan.mesh = {.nodes = nodes, .ranks_per_node = per_node, .axes = {}};
      plan.global_batch = 7;
      plan.operators = {{.match = "*", .layout = layout, .algorithm = MatmulAlgorithm::summa}};
      SCOPED_TRACE(fmt::format("{} on {} x {}", to_string(layout), nodes, per_node));
      expect_folding_changes_nothing(plan, graph, *analytic_costs(cluster));
    }
  }
}

TEST(Folding, StatesShardedWithinStages) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4});
  for (const auto& [nodes, per_node] : {std::pair{1, 4}, {2, 4}, {4, 2}, {8, 4}}) {
    for (const std::int64_t stages : {2, 4}) {
      const Cluster cluster = described(nodes, per_node);
      Plan plan = planned(find_planner("1f1b"), graph, cluster, stages);
      const Factor all = data_grid(plan.mesh);
      plan.operators = {{.match = "*", .state = StateFactors{.p = all, .g = all, .os = all}}};
      SCOPED_TRACE(fmt::format("{} × {}, {} stages", nodes, per_node, stages));
      expect_folding_changes_nothing(plan, graph, *analytic_costs(cluster));
    }
  }
}

/// Of equal ranks one may share its shards with a rank that has fewer samples or a shorter shard, and another not.
TEST(Folding, PartnersThatDiffer) {
  const Cluster cluster = described(2, 4);
  const auto states = [](Factor p, Factor os) { return StateFactors{.p = p, .g = p, .os = os}; };
  // An odd vocabulary and width: parameters whose elements neither two ranks nor eight divide.
  for (const std::int64_t vocabulary : {256, 301}) {
    const ModelGraph graph = build_model(
        {.name = "gpt", .layers = 1, .hidden = 15, .heads = 3, .vocabulary = vocabulary, .sequence_length = 4});
    for (const std::int64_t samples : {3, 8, 9, 13, 14, 16}) {
      for (const StateFactors& state : {states({2, 1}, {2, 1}), states({4, 1}, {4, 1}), states({2, 1}, {4, 2}),
                                        states({1, 1}, {4, 2}), states({4, 1}, {4, 2}), states({2, 1}, {4, 1})}) {
        Plan plan = planned(find_planner("ddp"), graph, cluster, 0);
        plan.schedule.micro_batches = 1;
        plan.global_batch = samples;
        plan.operators = {{.match = "*", .state = state}};
        for (const char* sharding : {"intra_tensor", "inter_tensor"}) {
          plan.optimizer.sharding = sharding;
          plan.optimizer.spread = plan.optimizer.sharding == "inter_tensor" ? "broadcast" : "all_gather";
          SCOPED_TRACE(fmt::format("{} samples, {}, {}, {} words", samples,
                                   to_string(state.p) + " " + to_string(state.os), sharding, vocabulary));
          expect_folding_changes_nothing(plan, graph, *analytic_costs(cluster));
        }
      }
    }
  }
}

TEST(Folding, StagesOfLayoutsUnderLeafSwitches) {
  const ModelGraph graph = build_model({.name = "gpt-nano", .layers = 4, .hidden = 96, .heads = 6, .vocabulary = 96});
  Cluster cluster = described(12, 1);
  cluster.nodes_per_leaf = 4;
  cluster.spine_oversubscription = 2.0;
  Plan plan = planned(find_planner("megatron"), graph, cluster, 2);
  for (OperatorRule& rule : plan.operators) {
    if (rule.layout) rule.layout = Layout{.p0 = {1, 2}, .p1 = {1, 3}, .p2 = {}};
  }
  for (OperatorRule& rule : plan.operators) {  // a table's rows, the words
    if (rule.match == "embedding" && rule.layout) std::swap(rule.layout->p1, rule.layout->p2);
  }
  std::vector<int> leaf_of_node;
  for (int node = 0; node < cluster.nodes; ++node) leaf_of_node.push_back(node / cluster.nodes_per_leaf);
  // Groups of three nodes begin anywhere under leaves of four: ranks at one place of the two stages are told apart
  // together, so that every message has one class behind it.
  const RankClasses classes = rank_classes(plan, graph, leaf_of_node);
  const int a_stage = plan.mesh.num_ranks() / 2;
  std::map<int, int> behind;
  for (int rank = 0; rank < a_stage; ++rank) {
    const auto [known, is_new] = behind.try_emplace(classes.class_of_rank[static_cast<std::size_t>(rank)],
                                                    classes.class_of_rank[static_cast<std::size_t>(rank + a_stage)]);
    EXPECT_EQ(known->second, classes.class_of_rank[static_cast<std::size_t>(rank + a_stage)]) << rank;
  }
  EXPECT_GT(behind.size(), 1U);
}

TEST(RankClasses, DataRanksOfOneShapeAreOneClass) {
  Plan plan;
  plan.mesh = {.nodes = 128, .ranks_per_node = 8, .axes = {{"data", 1024}}};
  plan.global_batch = 2048;
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  const RankClasses classes = rank_classes(plan, graph);
  EXPECT_EQ(classes.representatives, std::vector<int>{0});
  EXPECT_EQ(classes.class_of_rank, std::vector<int>(1024, 0));
  // Those with two samples, with one, with none.
  plan.global_batch = 2001;
  EXPECT_EQ(rank_classes(plan, graph).representatives, (std::vector<int>{0, 1000, 1001}));
}

TEST(RankClasses, StagesAreClassesOfTheirOwn) {
  Plan plan;
  plan.global_batch = 2;
  plan.mesh = {.nodes = 2, .ranks_per_node = 4, .axes = {{"stage", 4}, {"data", 2}}};
  const RankClasses classes = rank_classes(plan, build_model({.name = "mlp-tiny"}));
  EXPECT_EQ(classes.representatives, (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(classes.class_of_rank, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(RankClasses, ShardsOfOneSizeAreOneClass) {
  const ModelGraph graph = build_model({.name = "mlp", .widths = {8, 8, 8}});
  Plan plan;
  plan.global_batch = 8;
  plan.mesh = {.nodes = 2, .ranks_per_node = 4, .axes = {{"data", 8}}};
  plan.operators = {{.match = "*", .state = StateFactors{.p = {4, 1}, .g = {4, 2}, .os = {4, 2}}}};
  EXPECT_EQ(rank_classes(plan, graph).representatives, std::vector<int>{0});
  const ModelGraph uneven = build_model({.name = "mlp", .widths = {8, 8, 6}});
  EXPECT_GT(rank_classes(plan, uneven).representatives.size(), 1U);
}

/// Whatever is done once a class is done as often for 131,072 ranks as for 1,024: states that all ranks share are cut
/// into full shards, short ones and none, wherever a rank stands, and every leaf switch is in every group.
TEST(RankClasses, AreAsFewForManyRanks) {
  const ModelGraph graph = build_model({.name = "gpt2-small"});
  constexpr int ranks_per_node = 8;
  constexpr int nodes_per_leaf = 16;
  std::set<std::int64_t> sizes;
  for (const Parameter& parameter : graph.parameters) sizes.insert(parameter.num_elements());
  const std::size_t most_classes = 2 * sizes.size() + 1;  // a size tells ranks apart before and behind its short shard
  for (const int nodes : {128, 2048, 16384}) {
    Plan plan;
    plan.mesh = {.nodes = nodes, .ranks_per_node = ranks_per_node, .axes = {{"data", nodes * ranks_per_node}}};
    plan.global_batch = plan.mesh.num_ranks();
    const Factor all = data_grid(plan.mesh);
    plan.operators = {{.match = "*", .state = StateFactors{.p = all, .g = all, .os = all}}};
    std::vector<int> leaf_of_node;
    for (int node = 0; node < nodes; ++node) leaf_of_node.push_back(node / nodes_per_leaf);
    SCOPED_TRACE(fmt::format("{} ranks", plan.mesh.num_ranks()));
    const RankClasses classes = rank_classes(plan, graph, leaf_of_node);
    ASSERT_LE(classes.representatives.size(), most_classes);
    EXPECT_EQ(fullest_ranks(plan, graph), std::vector<int>{0});
    for (const int rank : classes.representatives) {
      const Program program = lower(plan, graph, rank, no_workspace);
      std::size_t num_members = 0;
      for (const Group& group : program.groups) num_members += group.ranks.size();
      EXPECT_EQ(num_members, static_cast<std::size_t>(plan.mesh.num_ranks())) << "all ranks are listed once";
    }
  }
}

}  // namespace
}  // namespace strata::test_folding
