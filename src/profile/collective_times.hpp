#pragma once

/// @file
/// Collectives of every kind and size on the groups that Programs use. The decision: groups of one shape are measured
/// at once, as they work at once in a step.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/world.hpp"
#include "exec/timed_collectives.hpp"
#include "ir/machine/cost_profile.hpp"
#include "ir/program/program.hpp"

namespace strata::profile {

/// Groups whose members sit alike; no rank is in two of them.
struct GroupsOfShape {
  Factor shape;
  std::vector<std::vector<int>> groups;  ///< world ranks
  bool operator==(const GroupsOfShape&) const = default;
};

/// Each shape of several ranks that some rank has a group of, in the order of ranks; of groups that overlap the first.
/// @param groups_of_ranks by rank.
std::vector<GroupsOfShape> groups_by_shape(std::span<const std::vector<std::vector<int>>> groups_of_ranks,
                                           int ranks_per_node);

/// Of all ranks' Programs. Collective, and equal on all ranks.
std::vector<GroupsOfShape> groups_to_measure(const comm::World& world, const Program& program);

constexpr std::int64_t smallest_measured_elements = 16;
constexpr std::int64_t largest_measured_elements = std::int64_t{1} << 24;  // 64 MiB of f32
/// What operands must hold: an all_to_all's elements are a multiple of its ranks.
std::int64_t measured_capacity(const GroupsOfShape& groups);

/// Adds rows and lines of @p transport to @p profile, up to the size that takes a second. Collective, and equal on all
/// ranks. @param collectives of this rank's group; not called on a rank that is in none of @p groups.
void measure_collectives(const comm::World& world, const GroupsOfShape& groups, const std::string& transport,
                         const TimedCollectives& collectives, CostProfile& profile);

}  // namespace strata::profile
