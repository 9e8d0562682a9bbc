#include "harness/job_array.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "base/random.hpp"

namespace strata::harness {
namespace {

JobGeometry geometry_of(const Experiment& e, const Site& site) {
  return {.nodes = e.num_machines(),
          .ranks_per_node = e.ranks_per_machine(),
          .threads_per_rank = e.resources.threads_per_rank,
          .gpus_per_node = site.gpus_per_node,
          .time_limit_minutes = e.job.time_limit_minutes,
          .partition = e.job.partition.empty() ? site.partition : e.job.partition,
          .constraint = e.job.constraint.empty() ? site.constraint : e.job.constraint};
}

/// Equal for points that differ in their strategy alone.
std::string head_to_head_key(const Experiment& experiment) {
  std::string text;
  for (const CanonicalKey& key : canonical_keys(experiment)) {
    if (!key.key.starts_with("strategy.")) text += key.key + " = " + key.value + "\n";
  }
  return text;
}

/// A task of the points @p rivals, which compete in blocks, or of one that runs alone.
Task task_of(const std::vector<const Point*>& rivals) {
  const JobSection& job = rivals.front()->experiment.job;
  Task task;
  if (job.blocks == 0) {
    task.launches.push_back({rivals.front()->id, -1, 0});
    return task;
  }
  task.block_seed = job.block_seed;
  task.one_launch = job.one_launch;
  for (std::int64_t block = 0; block < job.blocks; ++block) {
    std::int64_t place = 0;
    for (const int rival : block_order(static_cast<int>(rivals.size()), block, job.block_seed)) {
      task.launches.push_back({rivals[static_cast<std::size_t>(rival)]->id, block, place++});
    }
  }
  return task;
}

}  // namespace

double JobArray::node_hours() const {
  return static_cast<double>(geometry.nodes * geometry.time_limit_minutes) / 60.0 * static_cast<double>(tasks.size());
}

double JobArray::gpu_hours() const { return node_hours() * static_cast<double>(geometry.gpus_per_node); }

int blocks_needed(std::int64_t num_comparisons) {
  constexpr double chance_of_a_false_claim = 0.05;
  int blocks = 1;
  while (static_cast<double>(num_comparisons) * std::pow(2.0, 1 - blocks) > chance_of_a_false_claim) ++blocks;
  return blocks;
}

std::vector<int> block_order(int num_strategies, std::int64_t block, std::int64_t seed) {
  const RandomStream random{static_cast<std::uint64_t>(seed), stream_of("block order")};
  std::vector<int> order(static_cast<std::size_t>(num_strategies));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t left = order.size(); left > 1; --left) {
    // A block has 2^20 words of its own; the bias of the remainder is below 1e-7 for any number of strategies.
    const std::uint64_t word = random.word((static_cast<std::uint64_t>(block) << 20U) + left);
    std::swap(order[left - 1], order[word % left]);
  }
  return order;
}

std::vector<JobArray> job_arrays(std::span<const Point> points, const Site& site) {
  struct Open {
    std::vector<std::vector<const Point*>> tasks;
    std::map<std::string, std::size_t> rivals_at;  ///< head_to_head_key → task
  };
  std::vector<std::pair<JobGeometry, Open>> opened;
  std::map<JobGeometry, std::size_t> place;
  for (const Point& point : points) {
    const JobGeometry geometry = geometry_of(point.experiment, site);
    const auto [at, is_new] = place.try_emplace(geometry, opened.size());
    if (is_new) opened.emplace_back(geometry, Open{});
    Open& open = opened[at->second].second;
    if (point.experiment.job.blocks > 0) {
      const auto [task, first] = open.rivals_at.try_emplace(head_to_head_key(point.experiment), open.tasks.size());
      if (!first) {
        open.tasks[task->second].push_back(&point);
        continue;
      }
    }
    open.tasks.push_back({&point});
  }
  std::vector<JobArray> arrays;
  for (const auto& [geometry, open] : opened) {
    JobArray array{.geometry = geometry, .tasks = {}};
    for (const std::vector<const Point*>& rivals : open.tasks) {
      array.tasks.push_back(task_of(rivals));
      array.max_running = std::max(array.max_running, rivals.front()->experiment.job.max_running);
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

std::vector<JobArray> cut_to_size(std::vector<JobArray> arrays, std::int64_t max_array_size) {
  std::vector<JobArray> parts;
  const auto size = static_cast<std::size_t>(max_array_size);
  for (JobArray& array : arrays) {
    for (std::size_t begin = 0; begin < array.tasks.size(); begin += size) {
      const auto first = array.tasks.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = array.tasks.begin() + static_cast<std::ptrdiff_t>(std::min(array.tasks.size(), begin + size));
      parts.push_back({.geometry = array.geometry,
                       .tasks = {std::make_move_iterator(first), std::make_move_iterator(last)},
                       .max_running = array.max_running});
    }
  }
  return parts;
}

}  // namespace strata::harness
