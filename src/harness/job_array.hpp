#pragma once

/// @file
/// A sweep as Slurm takes it: one array a geometry, since all tasks of an array have the same nodes and limits. A task
/// is one point, or, head to head, all points that differ in nothing but their strategy, launched in random blocks on
/// the same nodes.

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/sweep.hpp"
#include "harness/site.hpp"

namespace strata::harness {

/// What all tasks of an array have in common.
struct JobGeometry {
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t threads_per_rank = 1;
  std::int64_t gpus_per_node = 0;
  std::int64_t time_limit_minutes = 0;
  std::string partition;   ///< empty: the cluster's default
  std::string constraint;  ///< empty: none
  auto operator<=>(const JobGeometry&) const = default;
  std::int64_t num_ranks() const { return nodes * ranks_per_node; }
};

/// One attempt at one point: a start of the launcher, or its share of one.
struct Launch {
  std::string point_id;
  std::int64_t block = -1;  ///< -1: not head to head
  std::int64_t order = 0;   ///< place in its block
  bool operator==(const Launch&) const = default;
};

/// What one job of the array does, one launch after the other.
struct Task {
  std::vector<Launch> launches;
  std::int64_t block_seed = 0;  ///< of the orders within blocks
  bool one_launch = false;      ///< the launcher is started once a block, for all of its launches
  bool operator==(const Task&) const = default;
};

struct JobArray {
  JobGeometry geometry;
  std::vector<Task> tasks;
  std::int64_t max_running = 0;  ///< tasks at a time; 0: as many as the cluster takes
  bool operator==(const JobArray&) const = default;

  double node_hours() const;  ///< at most: every task until its time limit
  double gpu_hours() const;
};

/// The arrays of @p points, in the order in which their geometries first appear.
std::vector<JobArray> job_arrays(std::span<const Point> points, const Site& site);

/// Arrays longer than @p max_array_size, cut. Slurm's MaxArraySize: the index of a task is below it; >= 1.
std::vector<JobArray> cut_to_size(std::vector<JobArray> arrays, std::int64_t max_array_size);

/// Blocks below which no comparison can be decided, however unlike the strategies: `strata compare` asks Wilcoxon's
/// signed-rank test of n pairs, whose smallest two-sided p-value is 2^(1-n), and corrects it by Holm for @p
/// num_comparisons at 95 %.
int blocks_needed(std::int64_t num_comparisons);

/// Places of @p num_strategies in @p block: a permutation of 0 … n - 1, a function of its arguments alone.
/// Fisher-Yates.
std::vector<int> block_order(int num_strategies, std::int64_t block, std::int64_t seed);

}  // namespace strata::harness
