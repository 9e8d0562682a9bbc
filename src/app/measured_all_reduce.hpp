#pragma once

/// @file
/// The bandwidth that the collectives of a run can be held against: an all-reduce over all its ranks, by the run's own
/// engine and transport, before training begins.

#include "comm/engine.hpp"
#include "comm/world.hpp"

namespace strata::app {

/// Bus bandwidth in byte/s, 2(n-1)/n · bytes / time, of an all-reduce of 16 MiB over all ranks, or of 1 MiB where the
/// wire is so slow that 16 would take a second. The best of three, each timed by its slowest rank. NaN for one rank,
/// which has nobody to talk to. Collective.
/// @param group the number in @p engine of the group of all ranks.
double measure_all_reduce_bytes_per_second(const comm::World& world, comm::Engine& engine, int group);

}  // namespace strata::app
