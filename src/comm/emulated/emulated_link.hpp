#pragma once

/// @file
/// A slow wire in front of a fast one: real data, released no earlier than a link of given α and β would have delivered
/// it. The decision: the *sender* computes when its message arrives and tells the receiver, so a receiver waits for the
/// sender's link (also in a pipeline, where it sends nothing itself); the clock is CLOCK_MONOTONIC, so all ranks run on
/// one machine.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace strata::comm {

struct EmulatedLink {
  double alpha_seconds = 0.0;
  double beta_seconds_per_byte = 0.0;
};

/// The outgoing link of one rank, shared by all its operations.
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
  const EmulatedLink& link() const { return link_; }

 private:
  EmulatedLink link_;
  std::int64_t free_ns_ = 0;
};

}  // namespace strata::comm
