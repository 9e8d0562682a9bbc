#include "profile/collective_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <sstream>

#include "base/ceil_div.hpp"
#include "base/median.hpp"
#include "cost/fit.hpp"
#include "cost/group_shape.hpp"

namespace strata::profile {
namespace {

constexpr int num_repetitions = 8;       ///< the first does not count
constexpr double longest_seconds = 1.0;  ///< of all repetitions, but for two

/// A line a group.
std::string text_of_groups(const Program& program) {
  std::string text;
  for (const Group& group : program.groups) text += fmt::format("{}\n", fmt::join(group.ranks, " "));
  return text;
}

std::vector<std::vector<int>> parse_groups(const std::string& text) {
  std::vector<std::vector<int>> groups;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<int>& group = groups.emplace_back();
    for (int rank = 0; words >> rank;) group.push_back(rank);
  }
  return groups;
}

/// Seconds of the slowest rank: the median of repetitions that begin together. What is over soon is done several times
/// in a row.
double seconds_of(const comm::World& world, const TimedCollectives& collectives, bool takes_part, Collective kind,
                  std::int64_t num_elements) {
  const int times = num_elements < 4096 ? 20 : 1;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<double> seconds;
  for (int i = 0; i < num_repetitions; ++i) {
    world.barrier();
    const double mine = takes_part ? collectives(kind, num_elements, times) : 0.0;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    double slowest[2] = {mine, spent.count()};
    world.all_reduce_max(slowest);
    if (i > 0) seconds.push_back(slowest[0]);
    if (slowest[1] > longest_seconds && i > 0) break;
  }
  return median(std::move(seconds));
}

}  // namespace

std::vector<GroupsOfShape> groups_by_shape(std::span<const std::vector<std::vector<int>>> groups_of_ranks,
                                           int ranks_per_node) {
  std::vector<GroupsOfShape> shapes;
  for (const std::vector<std::vector<int>>& groups : groups_of_ranks) {
    for (const std::vector<int>& ranks : groups) {
      if (ranks.size() < 2) continue;
      const Factor shape = group_shape(ranks, ranks_per_node);
      auto found = std::ranges::find(shapes, shape, &GroupsOfShape::shape);
      if (found == shapes.end()) found = shapes.insert(found, {.shape = shape, .groups = {}});
      const auto overlaps = [&](const std::vector<int>& other) {
        return std::ranges::find_first_of(ranks, other) != ranks.end();
      };
      if (std::ranges::none_of(found->groups, overlaps)) found->groups.push_back(ranks);
    }
  }
  return shapes;
}

std::vector<GroupsOfShape> groups_to_measure(const comm::World& world, const Program& program) {
  std::vector<std::vector<std::vector<int>>> groups_of_ranks;
  for (const std::string& text : world.all_gather(text_of_groups(program))) {
    groups_of_ranks.push_back(parse_groups(text));
  }
  return groups_by_shape(groups_of_ranks, world.ranks_on_node(0));
}

std::int64_t measured_capacity(const GroupsOfShape& groups) { return largest_measured_elements + groups.shape.total(); }

void measure_collectives(const comm::World& world, const GroupsOfShape& groups, const std::string& transport,
                         const TimedCollectives& collectives, CostProfile& profile) {
  const std::vector<int>& first = groups.groups.front();
  const int size = static_cast<int>(first.size());
  const bool takes_part = std::ranges::any_of(groups.groups, [&](const std::vector<int>& ranks) {
    return std::ranges::find(ranks, world.rank()) != ranks.end();
  });
  for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                Collective::all_to_all, Collective::broadcast, Collective::reduce, Collective::send}) {
    const Factor shape = kind == Collective::send
                             ? group_shape(std::vector<int>{first[0], first[1]}, world.ranks_on_node(0))
                             : groups.shape;
    const int sender = kind == Collective::reduce ? 1 : 0;  // the root, member 0, sends nothing then
    std::vector<TransferTime> times;
    for (std::int64_t n = smallest_measured_elements; n <= largest_measured_elements; n *= 4) {
      const std::int64_t elements = kind == Collective::all_to_all ? ceil_div(n, size) * size : n;
      const double seconds = seconds_of(world, collectives, takes_part, kind, elements);
      const auto bytes = elements * static_cast<std::int64_t>(sizeof(float));
      profile.collectives.push_back({kind, shape, transport, bytes, seconds});
      times.push_back({static_cast<double>(elements_sent(kind, elements, size, sender)) * sizeof(float), seconds});
      if (seconds > 1.0) break;  // a slow wire: larger ones would take minutes and lie on the same line
    }
    if (times.size() >= 2) {
      const Line line = fit_alpha_beta(times);
      profile.lines.push_back(
          {kind, shape, transport, line.alpha_seconds, line.beta_seconds_per_byte, line.mean_relative_error});
    }
  }
}

}  // namespace strata::profile
