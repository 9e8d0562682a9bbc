#pragma once

/// @file
/// Collectives of no Program by the host's communication engine, timed by the host's clock.

#include <cstdint>
#include <vector>

#include "comm/engine.hpp"
#include "comm/world.hpp"
#include "exec/timed_collectives.hpp"

namespace strata::profile {

/// The world as a group.
std::vector<int> all_ranks(const comm::World& world);

/// Where the operands of a run's collectives lie.
enum class OperandMemory : std::uint8_t {
  host,
  managed,  ///< and the GPU has written them last, as its kernels do: that they move to the host is part of the time
};

/// @param ranks a group with this rank among them; its number in @p engine is @p group. At most @p max_elements.
TimedCollectives engine_collectives(comm::Engine& engine, int group, const std::vector<int>& ranks, int rank,
                                    std::int64_t max_elements, OperandMemory memory);

}  // namespace strata::profile
