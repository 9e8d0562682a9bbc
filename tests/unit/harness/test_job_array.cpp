/// @file
/// Points become arrays: one a geometry, cut at the cluster's limit, head to head in random blocks.

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "harness/job_array.hpp"

namespace strata::harness::test_job_array {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr std::string_view experiment = R"(
name = "sweep"
[model]
name = "gpt-nano"
[data]
format = "synthetic"
[train]
global_batch = 12
[strategy]
name = "ddp"
)";

std::vector<Point> points_of(const std::string& rest) {
  return expand(read_experiment(std::string(experiment) + rest, "e.toml"), "cpu").points;
}

std::set<std::string> ids(const Task& task) {
  std::set<std::string> result;
  for (const Launch& launch : task.launches) result.insert(launch.point_id);
  return result;
}

TEST(JobArrays, OneAGeometryInTheOrderOfThePoints) {
  const auto points = points_of(R"(
[sweep]
product = { "resources.nodes" = [1, 2, 4], "strategy.name" = ["ddp", "single"], "train.seed" = [1, 2, 3, 4] }
)");
  const std::vector<JobArray> arrays = job_arrays(points, {});
  ASSERT_EQ(arrays.size(), 3U);
  for (std::size_t a = 0; a < 3; ++a) {
    EXPECT_EQ(arrays[a].geometry.nodes, std::int64_t{1} << a);
    ASSERT_EQ(arrays[a].tasks.size(), 8U);
    for (std::size_t t = 0; t < 8; ++t) {
      EXPECT_THAT(arrays[a].tasks[t].launches, ElementsAre(Launch{points[8 * a + t].id, -1, 0}));
    }
  }
}

TEST(JobArrays, TimePartitionAndConstraintAreGeometry) {
  const auto points = points_of(R"(
[job]
partition = "short"
[sweep]
zip = [ { "job.time_limit_minutes" = [10, 20, 20], "job.constraint" = ["a", "a", "b"], "train.seed" = [1, 2, 3] } ]
)");
  const std::vector<JobArray> arrays = job_arrays(points, {.partition = "of the site", .gpus_per_node = 4});
  ASSERT_EQ(arrays.size(), 3U);
  EXPECT_EQ(arrays[0].geometry.partition, "short");
  EXPECT_EQ(arrays[0].geometry.gpus_per_node, 4);
  EXPECT_EQ(arrays[2].geometry.constraint, "b");
  EXPECT_DOUBLE_EQ(arrays[1].node_hours(), 20.0 / 60.0);
  EXPECT_DOUBLE_EQ(arrays[1].gpu_hours(), 80.0 / 60.0);
}

TEST(JobArrays, EmulatedNodesTakeOneMachine) {
  const auto points = points_of(R"(
[resources]
nodes = 2
ranks_per_node = 3
[communication.emulated_link]
gbit_per_s = 1
inside.gbit_per_s = 100
)");
  const std::vector<JobArray> arrays = job_arrays(points, {});
  ASSERT_EQ(arrays.size(), 1U);
  EXPECT_EQ(arrays[0].geometry.nodes, 1);
  EXPECT_EQ(arrays[0].geometry.ranks_per_node, 6);
}

TEST(JobArrays, AreCutWhereTheClusterAsksForIt) {
  const auto points =
      points_of("[job]\nmax_running = 2\n[sweep]\nproduct = { \"train.seed\" = [1, 2, 3, 4, 5, 6, 7] }");
  const std::vector<JobArray> whole = job_arrays(points, {});
  const std::vector<JobArray> parts = cut_to_size(whole, 3);
  ASSERT_EQ(parts.size(), 3U);
  std::vector<Task> joined;
  for (const JobArray& part : parts) {
    EXPECT_LE(part.tasks.size(), 3U);
    EXPECT_EQ(part.max_running, 2);
    EXPECT_EQ(part.geometry, whole[0].geometry);
    joined.insert(joined.end(), part.tasks.begin(), part.tasks.end());
  }
  EXPECT_EQ(joined, whole[0].tasks);
  EXPECT_EQ(cut_to_size(whole, 7), whole);
}

TEST(JobArrays, RivalsShareATaskAndEveryBlockHoldsEachOnce) {
  const auto points = points_of(R"(
[job]
blocks = 5
one_launch = true
[sweep]
product = { "train.seed" = [1, 2], "strategy.name" = ["ddp", "single", "other"] }
)");
  const std::vector<JobArray> arrays = job_arrays(points, {});
  ASSERT_EQ(arrays.size(), 1U);
  ASSERT_EQ(arrays[0].tasks.size(), 2U);
  for (const Task& task : arrays[0].tasks) {
    ASSERT_EQ(task.launches.size(), 15U);
    EXPECT_TRUE(task.one_launch);
    EXPECT_EQ(ids(task).size(), 3U);
    for (std::size_t l = 0; l < 15; ++l) {
      EXPECT_EQ(task.launches[l].block, static_cast<std::int64_t>(l / 3));
      EXPECT_EQ(task.launches[l].order, static_cast<std::int64_t>(l % 3));
    }
    for (std::size_t block = 0; block < 5; ++block) {
      const std::vector<Launch> launches(task.launches.begin() + static_cast<std::ptrdiff_t>(3 * block),
                                         task.launches.begin() + static_cast<std::ptrdiff_t>(3 * block + 3));
      EXPECT_EQ(ids({launches}), ids(task));
    }
  }
  EXPECT_NE(ids(arrays[0].tasks[0]), ids(arrays[0].tasks[1]));
}

TEST(BlocksNeeded, AreThoseWhoseSmallestPValueIsSmallEnoughForAll) {
  EXPECT_EQ(blocks_needed(1), 6) << "2^-5 is 0.031, 2^-4 is 0.063";
  EXPECT_EQ(blocks_needed(2), 7);
  EXPECT_EQ(blocks_needed(12), 9) << "12 of 2^-8 are 0.047";
  EXPECT_EQ(blocks_needed(13), 10);
}

TEST(BlockOrder, IsAPermutationThatDependsOnBlockAndSeed) {
  std::set<std::vector<int>> seen;
  for (std::int64_t block = 0; block < 200; ++block) {
    std::vector<int> order = block_order(4, block, 1);
    seen.insert(order);
    EXPECT_EQ(order, block_order(4, block, 1));
    std::sort(order.begin(), order.end());
    EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
  }
  EXPECT_EQ(seen.size(), 24U);  // 200 draws out of 24: each is missed with probability 2e-4
  EXPECT_NE(block_order(20, 0, 1), block_order(20, 0, 2));
}

}  // namespace
}  // namespace strata::harness::test_job_array
