/// @file
/// The pairwise exchange. Items are numbered step-major, (step - 1)·segments + segment; they are posted in order, so
/// that MPI's non-overtaking rule matches them without tags of their own, and completed in order, so that a reduction
/// always adds own, index-1, index-2, ….

#include "comm/mpi/mpi_exchange.hpp"

#include <algorithm>

#include "comm/reduce.hpp"

namespace strata::comm {

namespace {

constexpr std::int64_t kLooksPerMessage = 4;
constexpr std::int64_t kShortestSleepNs = 20'000;
constexpr std::int64_t kLongestSleepNs = 1'000'000;

}  // namespace

void PollPace::event(std::int64_t now_ns) {
  gap_ns_ = has_begun() ? now_ns - last_event_ns_ : 0;
  last_event_ns_ = now_ns;
}

std::int64_t PollPace::wake_ns(std::int64_t now_ns) const {
  const std::int64_t quiet_ns = now_ns - last_event_ns_;
  return now_ns + std::clamp(std::max(gap_ns_, quiet_ns) / kLooksPerMessage, kShortestSleepNs, kLongestSleepNs);
}

void MpiExchange::start(const Primitive& primitive) {
  p_ = primitive;
  element_bytes_ = size_of(p_.dtype);
  segment_length_ = kMpiSegmentBytes / element_bytes_;
  segments_per_step_ = std::max<std::int64_t>(1, (p_.layout.length + segment_length_ - 1) / segment_length_);
  num_items_ = segments_per_step_ * (p_.members->size() - 1);
  num_posted_ = 0;
  num_done_ = 0;
  bytes_sent_ = 0;
  pace_.reset();
  awaits_clock_ = false;
  if (p_.kind == Collective::reduce_scatter && scratch_.empty()) {
    scratch_.resize(static_cast<std::size_t>(kMpiSegmentBytes * kMpiWindow));
  }
}

bool MpiExchange::skips(int member) const {
  return p_.skip_block > 0 && member / p_.skip_block == p_.members->index / p_.skip_block;
}

std::byte* MpiExchange::scratch(std::int64_t item) { return scratch_.data() + item % kMpiWindow * kMpiSegmentBytes; }

/// The part of all_gather and all_to_all that does not travel.
void MpiExchange::keep_own(std::int64_t segment) {
  if (p_.kind == Collective::reduce_scatter || skips(p_.members->index)) {
    return;
  }
  const Chunk own = p_.layout.slice(p_.members->index, segment, segment_length_);
  const Chunk whole = p_.layout.chunk(p_.members->index);
  const std::byte* source =
      p_.input + (p_.kind == Collective::all_gather ? own.begin - whole.begin : own.begin) * element_bytes_;
  const Chunk kept =
      p_.kind == Collective::all_gather ? own : p_.output_layout.slice(p_.members->index, segment, segment_length_);
  std::byte* target = p_.output + kept.begin * element_bytes_;
  if (source != target) {
    copy(target, source, own.size() * element_bytes_, Store::cached);
  }
}

void MpiExchange::post_deadlines(int step, std::int64_t now_ns) {
  const int size = p_.members->size();
  const int to = (p_.members->index + step) % size;
  const int from = (p_.members->index - step + size) % size;
  const int sent = p_.kind == Collective::all_gather ? p_.members->index : to;
  const std::int64_t num_bytes = p_.layout.chunk(sent).size() * element_bytes_;
  const int target = p_.members->world_ranks[static_cast<std::size_t>(to)];
  TokenBucket& link = medium_.links->towards(target);
  my_deadline_ns_ = link.depart_ns(now_ns, num_bytes) + link.latency_ns();
  check(MPI_Irecv(&their_deadline_ns_, 1, MPI_INT64_T, p_.members->world_ranks[static_cast<std::size_t>(from)],
                  p_.members->tag + p_.channel, medium_.communicator, &deadline_requests_[0]),
        "MPI_Irecv");
  check(MPI_Isend(&my_deadline_ns_, 1, MPI_INT64_T, target, p_.members->tag + p_.channel, medium_.communicator,
                  &deadline_requests_[1]),
        "MPI_Isend");
}

void MpiExchange::post(std::int64_t item, std::int64_t now_ns) {
  const int index = p_.members->index;
  const int size = p_.members->size();
  const int step = step_of(item);
  const std::int64_t segment = item % segments_per_step_;
  const int to = (index + step) % size;
  const int from = (index - step + size) % size;
  if (step == 1) {
    keep_own(segment);
  }
  if (medium_.links != nullptr && segment == 0) {
    post_deadlines(step, now_ns);
  }
  const auto slice = [&](int member) { return p_.layout.slice(member, segment, segment_length_); };
  Chunk sent;
  Chunk received;
  const std::byte* send_from = nullptr;
  std::byte* receive_to = nullptr;
  Flight& flight = flights_[static_cast<std::size_t>(item % kMpiWindow)];
  switch (p_.kind) {
    case Collective::reduce_scatter:
      sent = slice(to);
      received = slice(index);
      send_from = p_.input + sent.begin * element_bytes_;
      receive_to = scratch(item);
      break;
    case Collective::all_gather:
      sent = slice(index);
      received = slice(from);
      send_from = p_.input + (sent.begin - p_.layout.chunk(index).begin) * element_bytes_;
      receive_to = p_.output + received.begin * element_bytes_;
      break;
    case Collective::all_to_all:
      sent = slice(to);
      received = p_.output_layout.slice(from, segment, segment_length_);
      send_from = p_.input + sent.begin * element_bytes_;
      receive_to = p_.output + received.begin * element_bytes_;
      break;
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::send:
    case Collective::recv: STRATA_INVARIANT(false, "not an exchange");
  }
  flight.own = received;
  flight.requests.fill(MPI_REQUEST_NULL);
  if (received.size() > 0 && !skips(from)) {
    check(MPI_Irecv(receive_to, static_cast<int>(received.size() * element_bytes_), MPI_BYTE,
                    p_.members->world_ranks[static_cast<std::size_t>(from)], p_.members->tag + p_.channel,
                    medium_.communicator, &flight.requests[0]),
          "MPI_Irecv");
  }
  if (sent.size() > 0 && !skips(to)) {
    const std::int64_t num_bytes = sent.size() * element_bytes_;
    check(MPI_Isend(send_from, static_cast<int>(num_bytes), MPI_BYTE,
                    p_.members->world_ranks[static_cast<std::size_t>(to)], p_.members->tag + p_.channel,
                    medium_.communicator, &flight.requests[1]),
          "MPI_Isend");
    bytes_sent_ += num_bytes;
  }
}

bool MpiExchange::complete(std::int64_t item, std::int64_t now_ns) {
  Flight& flight = flights_[static_cast<std::size_t>(item % kMpiWindow)];
  int done = 0;
  check(MPI_Testall(2, flight.requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  if (done == 0) {
    return false;
  }
  if (medium_.links != nullptr && (item + 1) % segments_per_step_ == 0) {
    check(MPI_Testall(2, deadline_requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    awaits_clock_ = done != 0;
    if (done == 0 || now_ns < std::max(my_deadline_ns_, their_deadline_ns_)) {
      return false;
    }
    awaits_clock_ = false;
  }
  if (p_.kind == Collective::reduce_scatter && flight.own.size() > 0) {
    const Chunk whole = p_.layout.chunk(p_.members->index);
    std::byte* output = p_.output + (flight.own.begin - whole.begin) * element_bytes_;
    const std::byte* sum = step_of(item) == 1 ? p_.input + flight.own.begin * element_bytes_ : output;
    const std::array<const std::byte*, 2> inputs{sum, scratch(item)};
    reduce(inputs, output, Store::cached, nullptr, flight.own.size(), p_.dtype, p_.reduction);
  }
  return true;
}

Progress MpiExchange::advance(std::int64_t now_ns) {
  Progress progress = Progress::waiting;
  if (!pace_.has_begun()) {
    pace_.event(now_ns);
  }
  while (num_posted_ < num_items_ && num_posted_ - num_done_ < kMpiWindow) {
    // Over an emulated link steps follow one another, as its cost formula says.
    if (medium_.links != nullptr && starts_step(num_posted_) && num_posted_ != num_done_) {
      break;
    }
    post(num_posted_++, now_ns);
    progress = Progress::worked;
  }
  if (num_done_ < num_posted_ && complete(num_done_, now_ns)) {
    ++num_done_;
    pace_.event(now_ns);
    progress = Progress::worked;
  }
  return num_done_ == num_items_ ? Progress::finished : progress;
}

std::int64_t MpiExchange::wake_ns(std::int64_t now_ns) const {
  if (awaits_clock_) {
    return std::max(my_deadline_ns_, their_deadline_ns_);
  }
  return pace_.wake_ns(now_ns);
}

}  // namespace strata::comm
