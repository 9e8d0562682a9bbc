/// @file
/// Chains and trees. Receives and sends are posted and completed in order, each through a window of its own.

#include "comm/mpi_chain.hpp"

#include <algorithm>

#include "comm/reduce.hpp"

namespace strata::comm {

void MpiChain::start(const Primitive& primitive) {
  p_ = primitive;
  num_bytes_ = p_.layout.end * size_of(p_.dtype);
  num_segments_ = (num_bytes_ + kMpiSegmentBytes - 1) / kMpiSegmentBytes;
  choose_neighbours();
  num_receives_posted_ = 0;
  num_received_ = parent_ < 0 ? num_segments_ : 0;
  num_sends_posted_ = 0;
  num_sent_ = 0;
  pace_.reset();
  clock_ns_ = 0;
  departed_ns_ = 0;
  bytes_sent_ = 0;
}

void MpiChain::choose_neighbours() {
  const auto rank_of = [&](int member) { return p_.members->world_ranks[static_cast<std::size_t>(member)]; };
  parent_ = -1;
  children_.clear();
  if (p_.kind == Collective::send) {
    children_.push_back(rank_of(p_.peer));
    return;
  }
  if (p_.kind == Collective::recv) {
    parent_ = rank_of(p_.peer);
    return;
  }
  const int size = p_.members->size();
  const int distance = (p_.members->index - p_.peer + size) % size;  // from the root
  const auto at_distance = [&](int d) { return rank_of((p_.peer + d) % size); };
  if (num_segments_ > 1) {
    if (distance > 0) {
      parent_ = at_distance(distance - 1);
    }
    if (distance + 1 < size) {
      children_.push_back(at_distance(distance + 1));
    }
    return;
  }
  // Binomial tree: the parent clears my lowest set bit; children set one bit below it, the largest subtree first.
  int lowest = 1;
  while (lowest < size && (distance & lowest) == 0) {
    lowest *= 2;
  }
  if (distance > 0) {
    parent_ = at_distance(distance - lowest);
  }
  for (int bit = lowest / 2; bit > 0; bit /= 2) {
    if (distance + bit < size) {
      children_.push_back(at_distance(distance + bit));
    }
  }
}

Chunk MpiChain::segment_bytes(std::int64_t segment) const {
  return {segment * kMpiSegmentBytes, std::min(num_bytes_, (segment + 1) * kMpiSegmentBytes)};
}

void MpiChain::post_receive(std::int64_t segment) {
  Flight& flight = receives_[static_cast<std::size_t>(segment % kMpiWindow)];
  const int tag = p_.members->tag + p_.channel;
  const Chunk bytes = segment_bytes(segment);
  if (medium_.link != nullptr) {
    check(MPI_Irecv(&flight.deadline_ns, 1, MPI_INT64_T, parent_, tag, medium_.communicator, &flight.requests[1]),
          "MPI_Irecv");
  }
  check(MPI_Irecv(p_.output + bytes.begin, static_cast<int>(bytes.size()), MPI_BYTE, parent_, tag, medium_.communicator,
                  &flight.requests[0]),
        "MPI_Irecv");
}

void MpiChain::post_send(std::int64_t item, std::int64_t now_ns) {
  const auto num_children = static_cast<std::int64_t>(children_.size());
  const int child = children_[static_cast<std::size_t>(item % num_children)];
  const Chunk bytes = segment_bytes(item / num_children);
  Flight& flight = sends_[static_cast<std::size_t>(item % kMpiWindow)];
  const int tag = p_.members->tag + p_.channel;
  if (medium_.link != nullptr) {
    departed_ns_ = medium_.link->depart_ns(now_ns, bytes.size());
    flight.deadline_ns = departed_ns_ + medium_.link->latency_ns();
    check(MPI_Isend(&flight.deadline_ns, 1, MPI_INT64_T, child, tag, medium_.communicator, &flight.requests[1]),
          "MPI_Isend");
  }
  const std::byte* data = parent_ < 0 ? p_.input : p_.output;
  check(MPI_Isend(data + bytes.begin, static_cast<int>(bytes.size()), MPI_BYTE, child, tag, medium_.communicator,
                  &flight.requests[0]),
        "MPI_Isend");
  bytes_sent_ += bytes.size();
}

bool MpiChain::landed(Flight& flight) {
  int done = 0;
  check(MPI_Testall(2, flight.requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  return done != 0;
}

Progress MpiChain::advance(std::int64_t now_ns) {
  Progress progress = Progress::waiting;
  clock_ns_ = 0;
  if (!pace_.has_begun()) {
    pace_.event(now_ns);
    if (parent_ < 0 && p_.kind == Collective::broadcast && p_.input != p_.output) {
      copy(p_.output, p_.input, num_bytes_, Store::cached);
    }
  }
  while (parent_ >= 0 && num_receives_posted_ < num_segments_ && num_receives_posted_ - num_received_ < kMpiWindow) {
    post_receive(num_receives_posted_++);
    progress = Progress::worked;
  }
  if (num_received_ < num_receives_posted_) {
    Flight& flight = receives_[static_cast<std::size_t>(num_received_ % kMpiWindow)];
    if (landed(flight)) {
      if (medium_.link == nullptr || now_ns >= flight.deadline_ns) {
        ++num_received_;
        progress = Progress::worked;
      } else {
        clock_ns_ = flight.deadline_ns;
      }
    }
  }
  const auto num_children = static_cast<std::int64_t>(children_.size());
  while (num_sends_posted_ < num_received_ * num_children && num_sends_posted_ - num_sent_ < kMpiWindow) {
    post_send(num_sends_posted_++, now_ns);
    progress = Progress::worked;
  }
  if (num_sent_ < num_sends_posted_ && landed(sends_[static_cast<std::size_t>(num_sent_ % kMpiWindow)])) {
    ++num_sent_;
    progress = Progress::worked;
  }
  if (progress == Progress::worked) {
    pace_.event(now_ns);
  }
  if (num_received_ < num_segments_ || num_sent_ < num_sends()) {
    return progress;
  }
  // A sender is done when its last byte has left; the receiver waits for the latency too.
  if (now_ns < departed_ns_) {
    clock_ns_ = departed_ns_;
    return Progress::waiting;
  }
  return Progress::finished;
}

std::int64_t MpiChain::wake_ns(std::int64_t now_ns) const {
  const bool sends_pending = num_sent_ < num_sends_posted_;
  if (clock_ns_ != 0 && !sends_pending) {
    return clock_ns_;
  }
  const std::int64_t poll = pace_.wake_ns(now_ns);
  return clock_ns_ != 0 ? std::min(clock_ns_, poll) : poll;
}

}  // namespace strata::comm
