#pragma once

/// @file
/// The memory that the members of a group share on one node: counters and staging. Sizes keep one member's staging
/// inside its L2 cache, so that only the user's own buffers cost memory bandwidth.

#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/shm/doorbell.hpp"
#include "comm/shm/shared_segment.hpp"

namespace strata::comm {

/// Operations of one group that may run at the same time.
constexpr int kNumChannels = 2;

/// One direction between two members: a ring of two segments.
struct PairChannel {
  static constexpr std::int64_t kSegmentBytes = 128 * 1024;
  alignas(64) std::atomic<std::int64_t> num_produced{0};
  alignas(64) std::atomic<std::int64_t> num_consumed{0};
  alignas(64) std::atomic<std::int64_t> num_sends_posted{0};  ///< for the watchdog
  std::atomic<std::int64_t> num_receives_posted{0};
};

class SharedArea {
 public:
  /// Staging a member, buffer and channel.
  static constexpr std::int64_t kStageBytes = 128 * 1024;

  static std::int64_t size_bytes(int num_members);
  /// @p doorbells of the members, in order.
  SharedArea(SharedSegment segment, int num_members, int index, std::vector<Doorbell*> doorbells);

  int size() const { return num_members_; }
  std::int64_t touched_bytes() const { return segment_.touched_bytes(); }
  /// Collectives that @p member has posted to this group.
  std::atomic<std::int64_t>& num_posted(int member);
  /// Micro-steps that @p member has finished in @p channel since the group was made.
  std::atomic<std::int64_t>& num_finished(int channel, int member);
  std::byte* stage(int channel, int member, int buffer);
  std::byte* result(int channel, int member, int buffer);
  PairChannel& pair(int sender, int receiver);
  std::byte* pair_segment(int sender, int receiver, std::int64_t segment);

  /// All members have finished at least @p count micro-steps in @p channel.
  bool all_finished(int channel, std::int64_t count);
  /// Publish my count, and wake the others if it is I whom they may have waited for.
  void publish(int channel, std::int64_t count);
  void ring(int member) { doorbells_[static_cast<std::size_t>(member)]->ring(); }

  /// Micro-steps of the operations before the current one, by channel; equal on all members.
  std::int64_t& base(int channel) { return base_[channel]; }

 private:
  struct alignas(64) Counter {
    std::atomic<std::int64_t> value{0};
  };
  Counter& counter(std::int64_t index);
  std::byte* staging(int channel, int member);
  SharedSegment segment_;
  int num_members_;
  int index_;
  std::vector<Doorbell*> doorbells_;
  std::int64_t base_[kNumChannels]{};
};

}  // namespace strata::comm
