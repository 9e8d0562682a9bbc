/// @file
/// Producer and consumer of one pair channel. The messages of a direction follow one another, so each side keeps its
/// place in the channel's own counter.

#include "comm/shm/shared_pair.hpp"

#include <algorithm>

#include "comm/reduce.hpp"
#include "comm/shm/shared_area.hpp"

namespace strata::comm {

void SharedPair::start(const Primitive& primitive) {
  p_ = primitive;
  num_bytes_ = p_.layout.end * size_of(p_.dtype);
  num_segments_ = (num_bytes_ + PairChannel::kSegmentBytes - 1) / PairChannel::kSegmentBytes;
  segment_ = 0;
  bytes_sent_ = 0;
  SharedArea& area = *p_.members->area;
  const int me = p_.members->index;
  first_ = p_.kind == Collective::send ? area.pair(me, p_.peer).num_produced.load(std::memory_order_relaxed)
                                       : area.pair(p_.peer, me).num_consumed.load(std::memory_order_relaxed);
}

Progress SharedPair::advance(std::int64_t) {
  if (segment_ == num_segments_) {
    return Progress::finished;
  }
  SharedArea& area = *p_.members->area;
  const int me = p_.members->index;
  const bool sends = p_.kind == Collective::send;
  PairChannel& pair = sends ? area.pair(me, p_.peer) : area.pair(p_.peer, me);
  const std::int64_t position = first_ + segment_;
  const std::int64_t begin = segment_ * PairChannel::kSegmentBytes;
  const std::int64_t num_bytes = std::min(PairChannel::kSegmentBytes, num_bytes_ - begin);
  if (sends) {
    if (position - pair.num_consumed.load(std::memory_order_acquire) >= 2) {
      return Progress::waiting;
    }
    copy(area.pair_segment(me, p_.peer, position), p_.input + begin, num_bytes, Store::cached);
    pair.num_produced.store(position + 1, std::memory_order_release);
    bytes_sent_ += num_bytes;
  } else {
    if (pair.num_produced.load(std::memory_order_acquire) <= position) {
      return Progress::waiting;
    }
    copy(p_.output + begin, area.pair_segment(p_.peer, me, position), num_bytes, Store::cached);
    pair.num_consumed.store(position + 1, std::memory_order_release);
  }
  area.ring(p_.peer);
  ++segment_;
  return segment_ == num_segments_ ? Progress::finished : Progress::worked;
}

}  // namespace strata::comm
