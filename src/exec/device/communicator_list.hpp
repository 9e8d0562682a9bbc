#pragma once

/// @file
/// Which communicators the collectives of a Program need where the device carries them out, and in which order all
/// ranks make them. The decision: one for the collectives of each group, and one of two ranks for each direction in
/// which messages go. A communicator does one operation after the other, and the two directions between neighbours wait
/// for each other's kernels.

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program/program.hpp"

namespace strata {

/// Ordered: communicators are made in this order, so that no two ranks wait for each other in different ones.
struct CommunicatorKey {
  std::vector<int> ranks;  ///< world ranks, in the communicator's order; messages: sender, receiver
  std::string group;       ///< the Program's name of it
  bool messages = false;
  auto operator<=>(const CommunicatorKey&) const = default;
};

struct CommunicatorUse {
  CommunicatorKey key;
  std::uint64_t addresses = 0;  ///< hash of where in the arena this rank's operations on it read and write
};

/// Of one collective.
CommunicatorKey communicator_key(const Program& program, const Instruction& collective);
/// What this rank's Program uses, in order.
std::vector<CommunicatorUse> communicators_of(const Program& program);

/// A communicator of the job, equal on all ranks.
struct AgreedCommunicator {
  CommunicatorKey key;
  bool equal_addresses = false;  ///< all members' operations have the same addresses in their arenas
};
std::string to_text(const std::vector<CommunicatorUse>& uses);
/// @param texts to_text() of every rank, by rank. @return the communicators of all ranks, in order.
/// @throws InternalError where a member does not use a communicator that another one uses.
std::vector<AgreedCommunicator> agree(std::span<const std::string> texts);

}  // namespace strata
