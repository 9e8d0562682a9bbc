/// @file
/// What every mode promises, whatever it is. A new mode is tested here without a line of its own.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "models/model.hpp"
#include "planners/planner.hpp"
#include "support/simulated_account.hpp"
#include "support/source_dir.hpp"

namespace strata::test_planner_contract {
namespace {

Plan base_of(const Planner& planner, int ranks) {
  Plan plan;
  plan.strategy = planner.name();
  plan.global_batch = 24;
  plan.mesh.ranks_per_node = ranks;
  return plan;
}

std::map<std::string, OptionValue> defaults_of(const Planner& planner) {
  std::map<std::string, OptionValue> options;
  for (const OptionRow& row : planner.options()) options[std::string(row.name)] = row.default_value;
  return options;
}

/// Rank counts that the mode accepts; a refusal must say why.
std::vector<Plan> plans_of(const Planner& planner, const ModelGraph& graph) {
  const Cluster cluster;
  const std::map<std::string, OptionValue> options = defaults_of(planner);
  std::vector<Plan> plans;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    try {
      plans.push_back(
          planner.plan({.graph = graph, .cluster = cluster, .base = base_of(planner, ranks), .options = options}));
    } catch (const Unsupported& refusal) {
      EXPECT_NE(std::string(refusal.what()).find(std::to_string(ranks)), std::string::npos) << refusal.what();
    }
  }
  return plans;
}

TEST(PlannerContract, PlansAreValidDeterministicAndSurviveTheirText) {
  for (const char* model : {"gpt-nano", "llama-nano", "vgg-nano", "vit-nano"}) {
    const ModelGraph graph = build_model({.name = model});
    for (const Planner* planner : all_planners()) {
      const std::vector<Plan> plans = plans_of(*planner, graph);
      EXPECT_FALSE(plans.empty()) << planner->name();
      EXPECT_EQ(plans_of(*planner, graph), plans) << planner->name();
      for (const Plan& plan : plans) {
        EXPECT_NO_THROW(verify(plan, graph)) << planner->name();
        EXPECT_EQ(parse_plan(to_text(plan), "plan.toml"), plan) << planner->name();
        EXPECT_EQ(plan.strategy, planner->name());
        if (plan.mesh.axes.empty()) continue;  // verify() wants layouts then
        int ranks = 1;
        for (const MeshAxis& axis : plan.mesh.axes) ranks *= axis.size;
        EXPECT_EQ(ranks, plan.mesh.num_ranks()) << planner->name();
      }
    }
  }
}

/// So that one point of a sweep is refused and the others go on.
TEST(PlannerContract, ABatchThatRanksDoNotDivideIsPlannedOrRefusedWithItsNumbers) {
  Cluster cluster;
  cluster.intra_node = {.latency_seconds = 1e-6, .bandwidth_bytes_per_second = 1e9};
  cluster.memory_bandwidth_bytes_per_second = 1e9;
  cluster.peak_flops_per_second["f32"] = 1e9;
  const ModelGraph graph = build_model({.name = "gpt-nano"});
  const SimulatedAccount simulated(graph, cluster);
  for (const Planner* planner : all_planners()) {
    const std::map<std::string, OptionValue> options = defaults_of(*planner);
    int num_refused = 0;
    for (const int ranks : {1, 2}) {
      for (const int micro_batches : {1, 3}) {
        Plan base = base_of(*planner, ranks);
        base.global_batch = 25;
        base.schedule.micro_batches = micro_batches;
        try {
          const Plan plan = planner->plan({.graph = graph,
                                           .cluster = cluster,
                                           .base = base,
                                           .options = options,
                                           .evaluate = compares_steps(planner->name()) ? &simulated : nullptr});
          EXPECT_NO_THROW(verify(plan, graph)) << planner->name();
        } catch (const Unsupported& refusal) {
          ++num_refused;
          const bool is_alone = planner->name() == "single" && ranks > 1;
          const bool wants_more = planner->name() == "2bw" && micro_batches < ranks;
          if (!is_alone && !wants_more) {
            EXPECT_NE(std::string(refusal.what()).find("25 samples"), std::string::npos) << refusal.what();
          }
        }
      }
    }
    EXPECT_GE(num_refused, 2) << planner->name() << ": 3 does not divide 25";
  }
}

TEST(PlannerContract, NamesAreSortedFoundAndAreTheirFiles) {
  std::vector<std::string_view> names;
  for (const Planner* planner : all_planners()) {
    names.push_back(planner->name());
    EXPECT_EQ(&find_planner(planner->name()), planner);
    EXPECT_FALSE(planner->summary().empty());
    EXPECT_FALSE(planner->source().empty());
    EXPECT_TRUE(std::filesystem::exists(
        fmt::format("{}/src/planners/{}.cpp", test::source_dir(), mode_file_stem(planner->name()))));
  }
  EXPECT_TRUE(std::ranges::is_sorted(names));
}

TEST(PlannerContract, FileStems) {
  EXPECT_EQ(mode_file_stem("ddp"), "ddp");
  EXPECT_EQ(mode_file_stem("osdp-base"), "osdp_base");
  EXPECT_EQ(mode_file_stem("3d+osdp"), "m_3d_plus_osdp");
  EXPECT_EQ(mode_file_stem("1f1b"), "m_1f1b");
}

TEST(PlannerContract, AnUnknownNameListsTheKnownOnes) {
  try {
    find_planner("dpp");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("ddp"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("single"), std::string::npos) << error.what();
  }
}

TEST(PlannerContract, SingleRefusesTwoRanks) {
  const ModelGraph graph = build_model({.name = "mlp-tiny"});
  const Planner& single = find_planner("single");
  const Cluster cluster;
  EXPECT_THROW(single.plan({.graph = graph, .cluster = cluster, .base = base_of(single, 2), .options = {}}),
               Unsupported);
}

}  // namespace
}  // namespace strata::test_planner_contract
