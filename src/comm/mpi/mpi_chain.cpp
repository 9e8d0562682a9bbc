/// @file
/// Chains and trees. Receives and sends are posted and completed in order, each through a window of its own.

#include "comm/mpi/mpi_chain.hpp"

#include <algorithm>

#include "comm/reduce.hpp"

namespace strata::comm {

void MpiChain::start(const Primitive& primitive) {
  p_ = primitive;
  num_bytes_ = p_.layout.end * size_of(p_.dtype);
  num_segments_ = (num_bytes_ + kMpiSegmentBytes - 1) / kMpiSegmentBytes;
  choose_neighbours();
  num_receives_posted_ = 0;
  num_received_ = 0;
  num_sends_posted_ = 0;
  num_sent_ = 0;
  pace_.reset();
  clock_ns_ = 0;
  departed_ns_ = 0;
  bytes_sent_ = 0;
  if (reduces() && !sources_.empty() && scratch_.empty()) {
    scratch_.resize(static_cast<std::size_t>(kScratchBytes));
  }
}

void MpiChain::choose_neighbours() {
  const auto rank_of = [&](int member) { return p_.members->world_ranks[static_cast<std::size_t>(member)]; };
  sources_.clear();
  targets_.clear();
  if (p_.kind == Collective::send) {
    targets_.push_back(rank_of(p_.peer));
    return;
  }
  if (p_.kind == Collective::recv) {
    sources_.push_back(rank_of(p_.peer));
    return;
  }
  std::vector<int>& towards_root = reduces() ? targets_ : sources_;
  std::vector<int>& away_from_root = reduces() ? sources_ : targets_;
  const int size = p_.members->size();
  const int distance = (p_.members->index - p_.peer + size) % size;  // from the root
  const auto at_distance = [&](int d) { return rank_of((p_.peer + d) % size); };
  if (num_segments_ > 1) {
    if (distance > 0) {
      towards_root.push_back(at_distance(distance - 1));
    }
    if (distance + 1 < size) {
      away_from_root.push_back(at_distance(distance + 1));
    }
    return;
  }
  // Binomial tree: the parent clears my lowest set bit; children set one bit below it, the largest subtree first, or
  // last where it has to be added up before it comes.
  int lowest = 1;
  while (lowest < size && (distance & lowest) == 0) {
    lowest *= 2;
  }
  if (distance > 0) {
    towards_root.push_back(at_distance(distance - lowest));
  }
  for (int bit = lowest / 2; bit > 0; bit /= 2) {
    if (distance + bit < size) {
      away_from_root.push_back(at_distance(distance + bit));
    }
  }
  if (reduces()) {
    std::ranges::reverse(away_from_root);
  }
}

Chunk MpiChain::segment_bytes(std::int64_t segment) const {
  return {segment * kMpiSegmentBytes, std::min(num_bytes_, (segment + 1) * kMpiSegmentBytes)};
}

/// Where a message arrives.
std::byte* MpiChain::arrival(std::int64_t item) {
  return reduces() ? scratch_.data() + item % kMpiWindow * kMpiSegmentBytes
                   : p_.output + segment_bytes(item / num_sources()).begin;
}

/// Where a segment is complete that others have had a part in: a reduce has an output at the root alone.
std::byte* MpiChain::result(std::int64_t segment) {
  return reduces() && !targets_.empty() ? scratch_.data() + (kMpiWindow + segment % kMpiWindow) * kMpiSegmentBytes
                                        : p_.output + segment_bytes(segment).begin;
}

/// Whether what has arrived can be added: the sum that had the place before has left.
bool MpiChain::has_place(std::int64_t item) const {
  return !reduces() || targets_.empty() || item / num_sources() - num_sent_ < kMpiWindow;
}

void MpiChain::add(std::int64_t item) {
  const std::int64_t segment = item / num_sources();
  const Chunk bytes = segment_bytes(segment);
  std::byte* sum = result(segment);
  const std::byte* before = item % num_sources() == 0 ? p_.input + bytes.begin : sum;
  const std::array<const std::byte*, 2> inputs{before, arrival(item)};
  reduce(inputs, sum, Store::cached, nullptr, bytes.size() / size_of(p_.dtype), p_.dtype, p_.reduction);
}

void MpiChain::post_receive(std::int64_t item) {
  Flight& flight = receives_[static_cast<std::size_t>(item % kMpiWindow)];
  const int source = sources_[static_cast<std::size_t>(item % num_sources())];
  const int tag = p_.members->tag + p_.channel;
  if (medium_.links != nullptr) {
    check(MPI_Irecv(&flight.deadline_ns, 1, MPI_INT64_T, source, tag, medium_.communicator, &flight.requests[1]),
          "MPI_Irecv");
  }
  check(MPI_Irecv(arrival(item), static_cast<int>(segment_bytes(item / num_sources()).size()), MPI_BYTE, source, tag,
                  medium_.communicator, &flight.requests[0]),
        "MPI_Irecv");
}

void MpiChain::post_send(std::int64_t item, std::int64_t now_ns) {
  const std::int64_t segment = item / num_targets();
  const int target = targets_[static_cast<std::size_t>(item % num_targets())];
  const Chunk bytes = segment_bytes(segment);
  Flight& flight = sends_[static_cast<std::size_t>(item % kMpiWindow)];
  const int tag = p_.members->tag + p_.channel;
  if (medium_.links != nullptr) {
    TokenBucket& link = medium_.links->towards(target);
    const std::int64_t departed_ns = link.depart_ns(now_ns, bytes.size());
    departed_ns_ = std::max(departed_ns_, departed_ns);
    flight.deadline_ns = departed_ns + link.latency_ns();
    check(MPI_Isend(&flight.deadline_ns, 1, MPI_INT64_T, target, tag, medium_.communicator, &flight.requests[1]),
          "MPI_Isend");
  }
  const std::byte* data = sources_.empty() ? p_.input + bytes.begin : result(segment);
  check(
      MPI_Isend(data, static_cast<int>(bytes.size()), MPI_BYTE, target, tag, medium_.communicator, &flight.requests[0]),
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
    if (sources_.empty() && p_.kind == Collective::broadcast && p_.input != p_.output) {
      copy(p_.output, p_.input, num_bytes_, Store::cached);
    }
  }
  while (num_receives_posted_ < num_receives() && num_receives_posted_ - num_received_ < kMpiWindow) {
    post_receive(num_receives_posted_++);
    progress = Progress::worked;
  }
  if (num_received_ < num_receives_posted_ && has_place(num_received_)) {
    Flight& flight = receives_[static_cast<std::size_t>(num_received_ % kMpiWindow)];
    if (landed(flight)) {
      if (medium_.links == nullptr || now_ns >= flight.deadline_ns) {
        if (reduces()) {
          add(num_received_);
        }
        ++num_received_;
        progress = Progress::worked;
      } else {
        clock_ns_ = flight.deadline_ns;
      }
    }
  }
  while (num_sends_posted_ < num_ready() * num_targets() && num_sends_posted_ - num_sent_ < kMpiWindow) {
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
  if (num_received_ < num_receives() || num_sent_ < num_sends()) {
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
