/// @file
/// What becomes of points is known before they are queued: those that start, with their seconds, those that cannot,
/// and those of which only the nodes can tell.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "predict/machine_files.hpp"
#include "predict/planned_points.hpp"
#include "predict/prepared_point.hpp"
#include "predict/strategy_options.hpp"
#include "support/refusal.hpp"
#include "unit/data/temporary_folder.hpp"

namespace strata::predict::test_planned_points {
namespace {

using results::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* sweep = R"(name = "tiny"
{}
[model]
name = "gpt-nano"
[data]
format = "synthetic"
[resources]
nodes = 2
ranks_per_node = 2
[train]
global_batch = 8
[[sweep.zip]]
{}
)";

std::vector<Point> points(const std::string& cluster, const std::string& axes) {
  const std::string text = fmt::format(fmt::runtime(sweep), fmt::format("cluster = \"{}\"", cluster), axes);
  return expand(read_experiment(text, "e.toml", {}), "cpu", normalise_strategy).points;
}

std::vector<PlannedPoint> planned(const std::vector<Point>& points, const std::string& folder = "/no/such/folder") {
  return plan_points(points, "/no/such/folder/e.toml", folder, 2);
}

TEST(PlannedPoints, ThoseThatCannotStartAreToldFromThoseThatCan) {
  const auto found = planned(
      points("testbed-200mbit",
             R"(strategy = [{ name = "ddp" }, { name = "ddp" }, { name = "zero3" }, { name = "gpipe", stages = 3 }]
"resources.memory_gib" = [0, 0.001, 0, 0])"));
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].status, Status::ok);
  EXPECT_THAT(found[0].reason, IsEmpty());
  EXPECT_GT(found[0].step_seconds, 0.0);
  EXPECT_EQ(found[1].status, Status::oom);
  EXPECT_THAT(found[1].reason, HasSubstr("of 0.001 GiB"));
  EXPECT_TRUE(std::isnan(found[1].step_seconds));
  // Parameters are gathered in every step.
  EXPECT_GT(found[2].step_seconds, found[0].step_seconds);
  EXPECT_EQ(found[3].status, Status::refused) << found[3].reason;
}

TEST(PlannedPoints, WithoutCostsModesThatCompareArePlannedWhereTheyStart) {
  const auto found = planned(points("this", R"("strategy.name" = ["ddp", "megatron", "autoddl", "ddp"]
"resources.memory_gib" = [0, 0, 0, 0.001])"));
  EXPECT_EQ(found[0].status, Status::ok);
  EXPECT_THAT(found[0].reason, IsEmpty());
  EXPECT_TRUE(std::isnan(found[0].step_seconds));
  for (const std::size_t comparing : {1U, 2U}) {
    EXPECT_EQ(found[comparing].status, Status::ok);
    EXPECT_THAT(found[comparing].reason, HasSubstr("cluster this has none"));
  }
  EXPECT_EQ(found[3].status, Status::oom);  // memory needs no costs
}

TEST(PlannedPoints, WhatEarlierLaunchesMeasuredIsTheCostOfThisMachine) {
  const std::vector<Point> sweep_points = points("this", R"("strategy.name" = ["ddp", "megatron"])");
  const data::TemporaryFolder folder;
  const std::string prefix = machine_file_prefix(sweep_points[0].experiment, folder.path("results/tiny"));
  EXPECT_FALSE(earlier_machine(prefix));
  std::filesystem::create_directories(folder.path("results/tiny/machine"));
  Cluster machine = cluster_of(points("testbed-200mbit", R"("strategy.name" = ["ddp"])")[0].experiment, "/e.toml");
  machine.name = "this";
  const auto write = [&](const std::string& name, std::chrono::hours age) {
    std::ofstream(prefix + name) << to_text(machine);
    std::filesystem::last_write_time(prefix + name, std::filesystem::file_time_type::clock::now() - age);
  };
  machine.description = "old";
  write("a.toml", std::chrono::hours{2});
  machine.description = "new";
  write("b.toml", std::chrono::hours{1});
  write("c.toml.host.17", std::chrono::hours{0});  // is being written
  ASSERT_TRUE(earlier_machine(prefix));
  EXPECT_EQ(earlier_machine(prefix)->description, "new");

  const auto found = planned(sweep_points, folder.path("results/tiny"));
  const auto described = planned(points("testbed-200mbit", R"("strategy.name" = ["ddp", "megatron"])"));
  for (std::size_t p = 0; p < found.size(); ++p) {
    EXPECT_THAT(found[p].reason, IsEmpty());
    EXPECT_EQ(found[p].step_seconds, described[p].step_seconds);
  }
}

TEST(PlannedPoints, AreCountedAndABadOneIsNamed) {
  std::vector<std::size_t> reported;
  const auto seeds = points("testbed-200mbit",
                            R"("train.seed" = [1, 2, 3, 4]
"strategy.name" = ["ddp", "ddp", "ddp", "zero3"])");
  const auto found =
      plan_points(seeds, "/e.toml", "/no/such/folder", 2, [&](std::size_t done) { reported.push_back(done); });
  EXPECT_EQ(reported, (std::vector<std::size_t>{2, 4}));  // three are planned alike
  EXPECT_EQ(found[0].step_seconds, found[2].step_seconds);
  EXPECT_LT(found[2].step_seconds, found[3].step_seconds);

  const auto too_many = points("testbed-200mbit", R"("strategy.name" = ["ddp", "ddp"]
"resources.ranks_per_node" = [2, 8]
"train.global_batch" = [16, 16])");
  EXPECT_THAT(words_of<UserError>([&] { planned(too_many); }),
              AllOf(HasSubstr("point 1: "), HasSubstr("8 ranks on cluster testbed-200mbit")));
}

}  // namespace
}  // namespace strata::predict::test_planned_points
