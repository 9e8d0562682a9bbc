#pragma once

/// @file
/// Send and receive between two ranks of one node: a ring of two segments in shared memory. A send of at most two
/// segments is complete before it is received; a longer one waits for its receiver.

#include <cstdint>

#include "comm/primitive.hpp"

namespace strata::comm {

class SharedPair final : public Machine {
 public:
  void start(const Primitive& primitive) override;
  Progress advance(std::int64_t now_ns) override;
  std::int64_t wake_ns(std::int64_t) const override { return kNever; }

 private:
  Primitive p_;
  std::int64_t num_bytes_ = 0;
  std::int64_t num_segments_ = 0;
  std::int64_t segment_ = 0;  ///< next of this message
  std::int64_t first_ = 0;    ///< the channel's count before this message
};

}  // namespace strata::comm
