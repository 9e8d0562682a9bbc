/// @file
/// Addresses inside a group's segment: counters, pair channels, then pages of staging.

#include "comm/shm/shared_area.hpp"

#include <utility>

namespace strata::comm {
namespace {

constexpr std::int64_t kPageBytes = 4096;
constexpr std::int64_t kStagingBytes = 4 * SharedArea::kStageBytes;  // two stage and two result buffers

constexpr std::int64_t round_up(std::int64_t value) { return (value + kPageBytes - 1) / kPageBytes * kPageBytes; }

std::int64_t counters_bytes(std::int64_t num_members) { return round_up(64 * num_members * (1 + kNumChannels)); }
std::int64_t pairs_bytes(std::int64_t num_members) {
  return round_up(num_members * num_members * static_cast<std::int64_t>(sizeof(PairChannel)));
}
std::int64_t pair_data_bytes(std::int64_t num_members) {
  return num_members * num_members * 2 * PairChannel::kSegmentBytes;
}

}  // namespace

std::int64_t SharedArea::size_bytes(int num_members) {
  return counters_bytes(num_members) + pairs_bytes(num_members) + pair_data_bytes(num_members) +
         num_members * kNumChannels * kStagingBytes;
}

SharedArea::SharedArea(SharedSegment segment, int num_members, int index, std::vector<Doorbell*> doorbells)
    : segment_(std::move(segment)), num_members_(num_members), index_(index), doorbells_(std::move(doorbells)) {}

SharedArea::Counter& SharedArea::counter(std::int64_t index) {
  return reinterpret_cast<Counter*>(segment_.data())[index];
}

std::atomic<std::int64_t>& SharedArea::num_posted(int member) { return counter(member).value; }

std::atomic<std::int64_t>& SharedArea::num_finished(int channel, int member) {
  return counter(static_cast<std::int64_t>(num_members_) * (1 + channel) + member).value;
}

PairChannel& SharedArea::pair(int sender, int receiver) {
  auto* pairs = reinterpret_cast<PairChannel*>(segment_.data() + counters_bytes(num_members_));
  return pairs[sender * num_members_ + receiver];
}

std::byte* SharedArea::pair_segment(int sender, int receiver, std::int64_t segment) {
  const std::int64_t pair = sender * num_members_ + receiver;
  return segment_.data() + counters_bytes(num_members_) + pairs_bytes(num_members_) +
         (pair * 2 + segment % 2) * PairChannel::kSegmentBytes;
}

std::byte* SharedArea::staging(int channel, int member) {
  return segment_.data() + counters_bytes(num_members_) + pairs_bytes(num_members_) + pair_data_bytes(num_members_) +
         (static_cast<std::int64_t>(member) * kNumChannels + channel) * kStagingBytes;
}

std::byte* SharedArea::stage(int channel, int member, int buffer) {
  return staging(channel, member) + buffer * kStageBytes;
}

std::byte* SharedArea::result(int channel, int member, int buffer) {
  return staging(channel, member) + (2 + buffer) * kStageBytes;
}

bool SharedArea::all_finished(int channel, std::int64_t count) {
  for (int member = 0; member < num_members_; ++member) {
    if (num_finished(channel, member).load(std::memory_order_acquire) < count) {
      return false;
    }
  }
  return true;
}

void SharedArea::publish(int channel, std::int64_t count) {
  const std::int64_t before = num_finished(channel, index_).load(std::memory_order_relaxed);
  if (before == count) {
    return;
  }
  num_finished(channel, index_).store(count, std::memory_order_release);
  // Everybody waits for the slowest. If another member is no further than I was, that member's next step will wake the
  // others; of members that move at the same moment the last in the fence's order sees the rest and rings.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int member = 0; member < num_members_; ++member) {
    if (member != index_ && num_finished(channel, member).load(std::memory_order_relaxed) <= before) {
      return;
    }
  }
  for (int member = 0; member < num_members_; ++member) {
    if (member != index_) {
      ring(member);
    }
  }
}

}  // namespace strata::comm
