#pragma once

/// @file
/// A slow wire in front of a fast one: real data, released no earlier than a link of given α and β would have delivered
/// it. The decision: the *sender* computes when its message arrives and tells the receiver, so a receiver waits for the
/// sender's link (also in a pipeline, where it sends nothing itself); the clock is CLOCK_MONOTONIC, so all ranks run on
/// one machine.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace strata::comm {

struct EmulatedLink {
  double alpha_seconds = 0.0;
  double beta_seconds_per_byte = 0.0;
};

/// Nodes of one machine that are emulated as well: @p ranks_per_node consecutive ranks each, whose messages to each
/// other take a link of their own.
struct EmulatedNodes {
  int ranks_per_node = 1;
  EmulatedLink inside;
};

/// One outgoing link of a rank, shared by all its operations.
class TokenBucket {
 public:
  explicit TokenBucket(const EmulatedLink& link) : link_(link) {}

  /// Put a message on the link now. @return when its last byte has left.
  std::int64_t depart_ns(std::int64_t now_ns, std::int64_t num_bytes) {
    const double seconds = static_cast<double>(num_bytes) * link_.beta_seconds_per_byte;
    free_ns_ = std::max(free_ns_, now_ns) + std::llround(seconds * 1e9);
    return free_ns_;
  }
  std::int64_t latency_ns() const { return std::llround(link_.alpha_seconds * 1e9); }

 private:
  EmulatedLink link_;
  std::int64_t free_ns_ = 0;
};

/// The links on which one rank sends: one to all others, or one to those of its node and one to the rest, which know
/// nothing of each other.
class OutgoingLinks {
 public:
  OutgoingLinks(int rank, const EmulatedLink& link, const std::optional<EmulatedNodes>& nodes)
      : ranks_per_node_(nodes ? nodes->ranks_per_node : 0),
        node_(nodes ? rank / nodes->ranks_per_node : 0),
        link_(link),
        inside_(nodes ? nodes->inside : link) {}

  TokenBucket& towards(int world_rank) {
    return ranks_per_node_ > 0 && world_rank / ranks_per_node_ == node_ ? inside_ : link_;
  }

 private:
  int ranks_per_node_;  ///< 0: no nodes are emulated
  int node_;
  TokenBucket link_, inside_;
};

}  // namespace strata::comm
