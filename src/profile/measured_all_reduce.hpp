#pragma once

/// @file
/// The link that the collectives of a run can be held against: all-reduces by the run's own transport, before training
/// begins.

#include <cstdint>

#include "comm/world.hpp"
#include "exec/timed_collectives.hpp"
#include "ir/machine/cluster.hpp"

namespace strata::profile {

/// Bandwidth: bus bandwidth, 2(n-1)/n · bytes / time, of an all-reduce of 16 MiB over a group of n ranks, or of 1 MiB
/// where the wire is so slow that 16 would take a second. Latency: time / 2(n-1) of one of 8 bytes. The best of three,
/// each timed by the slowest rank of all groups, which work at the same time. Collective over @p world.
/// @param num_members of every group, at least 2. @param collectives on this rank's group, of max_all_reduced elements
/// at most.
Link measure_all_reduce(const comm::World& world, int num_members, const TimedCollectives& collectives);
constexpr std::int64_t max_all_reduced = std::int64_t{1} << 22;

}  // namespace strata::profile
