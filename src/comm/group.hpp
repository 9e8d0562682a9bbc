#pragma once

/// @file
/// A group of ranks as the engine keeps it: which transport connects its members, and the order of its operations.
/// Internal to src/comm.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/primitive.hpp"
#include "comm/shm/shared_area.hpp"

namespace strata::comm {

enum class Transport : std::uint8_t { mpi, shared_memory, two_level };

/// MPI tags of a group: one a channel, one for send and receive, one spare.
constexpr int kTagsPerGroup = 4;
constexpr int kPeerChannel = kNumChannels;
static_assert(kPeerChannel < kTagsPerGroup);

/// Operations with one member, in each direction.
struct PeerOrder {
  std::atomic<std::int64_t> num_sends{0};     ///< posted
  std::atomic<std::int64_t> num_receives{0};  ///< posted
  std::uint64_t last_send = 0;                ///< ticket id
  std::uint64_t last_receive = 0;
};

struct Group {
  int id = 0;      ///< equal on all members; two groups that share a member have different ones
  int number = 0;  ///< what create_group() returned on this rank
  std::string transport_name;
  Transport transport = Transport::mpi;
  Members all;
  std::unique_ptr<SharedArea> area;  ///< of all members (shared_memory) or those on my node (two_level)

  // two_level: member = node · ranks_per_node + place.
  Members local;   ///< of my node, by place
  Members column;  ///< of my place, by node
  int num_nodes = 1;
  int ranks_per_node = 1;
  std::array<std::unique_ptr<std::byte[]>, kNumChannels> workspace;  ///< see kWorkspaceElements

  // Written by the posting thread; the counts are also read by whoever answers a watchdog.
  std::atomic<std::int64_t> num_collectives{0};
  std::array<std::uint64_t, kNumChannels> last_in_channel{};  ///< ticket ids
  std::vector<PeerOrder> peers;                               ///< by member

  int node_index() const { return all.index / ranks_per_node; }
  int place() const { return all.index % ranks_per_node; }
  std::string ranks_text() const;
};

}  // namespace strata::comm
