/// @file
/// The micro-steps and what each must wait for. Positions: iteration i = -1 … num_slices, in each of them
/// 3(i+1) + {0: stage(i+1), 1: reduce(i), 2: gather(i-1)}. Kinds without a reduction gather in the place of the reduce.

#include "comm/shm/shared_exchange.hpp"

#include <algorithm>
#include <array>

#include "base/ceil_div.hpp"
#include "base/error.hpp"
#include "comm/shm/shared_area.hpp"

namespace strata::comm {
namespace {

/// Above this the output does not stay in the cache anyway: write around it.
constexpr std::int64_t kStreamingBytes = 4 * 1024 * 1024;

}  // namespace

void SharedExchange::start(const Primitive& primitive) {
  p_ = primitive;
  num_chunks_ = p_.members->size();
  if (p_.kind == Collective::reduce) {
    --num_chunks_;
    const std::int64_t length = ceil_div(p_.layout.end, num_chunks_);
    p_.layout = {0, length, length, p_.layout.end};
  }
  element_bytes_ = size_of(p_.dtype);
  // Slices are whole cache lines, so that the rows of a stage buffer are aligned.
  const std::int64_t row_bytes =
      p_.kind == Collective::broadcast ? SharedArea::kStageBytes : SharedArea::kStageBytes / num_chunks_ / 64 * 64;
  slice_length_ = row_bytes / element_bytes_;
  const std::int64_t length = p_.kind == Collective::broadcast ? p_.layout.end : p_.layout.length;
  num_slices_ = (length + slice_length_ - 1) / slice_length_;
  position_ = 0;
  bytes_sent_ = 0;
  store_ = p_.layout.length * num_chunks_ * element_bytes_ >= kStreamingBytes ? Store::streaming : Store::cached;
  inputs_.resize(static_cast<std::size_t>(num_chunks_));
}

std::int64_t SharedExchange::position(Step step, std::int64_t slice) const {
  switch (step) {
    case kStage: return 3 * slice;
    case kReduce: return 3 * (slice + 1) + 1;
    case kGather: return 3 * (slice + 2) + 2;
  }
  return 0;
}

bool SharedExchange::exists(std::int64_t position) const {
  const std::int64_t slice = position / 3 - position % 3;
  if (slice < 0 || slice >= num_slices_) {
    return false;
  }
  return position % 3 != kGather || has_results();
}

/// Every member must have finished this many micro-steps of the operation first.
std::int64_t SharedExchange::required(std::int64_t position) const {
  const std::int64_t slice = position / 3 - position % 3;
  switch (position % 3) {
    case kStage:  // the buffer's last contents have been read
      return slice < 2 ? 0 : SharedExchange::position(kReduce, slice - 2) + 1;
    case kReduce:  // the slice is staged, and the result buffer's last contents have been read
      return has_results() && slice >= 2 ? SharedExchange::position(kGather, slice - 2) + 1
                                         : SharedExchange::position(kStage, slice) + 1;
    default: return SharedExchange::position(kReduce, slice) + 1;
  }
}

Progress SharedExchange::advance(std::int64_t) {
  SharedArea& area = *p_.members->area;
  std::int64_t& base = area.base(p_.channel);
  while (position_ < num_positions() && !exists(position_)) {
    ++position_;
  }
  Progress progress = Progress::waiting;
  if (position_ < num_positions() && area.all_finished(p_.channel, base + required(position_))) {
    execute(position_++);
    while (position_ < num_positions() && !exists(position_)) {
      ++position_;
    }
    area.publish(p_.channel, base + position_);
    progress = Progress::worked;
  }
  if (position_ < num_positions()) {
    return progress;
  }
  base += num_positions();
  finish_streaming();  // before the operation is announced as done to another thread
  return Progress::finished;
}

void SharedExchange::execute(std::int64_t position) {
  const std::int64_t slice = position / 3 - position % 3;
  switch (position % 3) {
    case kStage: stage(slice); return;
    case kReduce: is_reduction(p_.kind) ? reduce_slice(slice) : gather(slice); return;
    default: p_.kind == Collective::reduce ? add_results(slice) : gather(slice); return;
  }
}

void SharedExchange::stage(std::int64_t slice) {
  const int me = p_.members->index;
  const int size = p_.members->size();
  std::byte* buffer = p_.members->area->stage(p_.channel, me, static_cast<int>(slice % 2));
  const std::int64_t row_bytes = slice_length_ * element_bytes_;
  if (p_.kind == Collective::broadcast) {
    if (me == p_.peer) {
      const std::int64_t begin = slice * row_bytes;
      const std::int64_t num_bytes = std::min(row_bytes, p_.layout.end * element_bytes_ - begin);
      copy(buffer, p_.input + begin, num_bytes, Store::cached);
      if (p_.output != p_.input) {
        copy(p_.output + begin, p_.input + begin, num_bytes, store_);
      }
      bytes_sent_ += num_bytes * (size - 1);
    }
    return;
  }
  if (p_.kind == Collective::all_gather) {
    const Chunk own = p_.layout.slice(me, slice, slice_length_);
    const std::byte* source = p_.input + (own.begin - p_.layout.chunk(me).begin) * element_bytes_;
    std::byte* target = p_.output + own.begin * element_bytes_;
    const std::int64_t num_bytes = own.size() * element_bytes_;
    copy(buffer, source, num_bytes, Store::cached);
    if (source != target) {
      copy(target, source, num_bytes, store_);
    }
    bytes_sent_ += num_bytes * (size - 1);
    return;
  }
  if (!has_chunk(me)) {
    return;
  }
  for (int member = 0; member < size; ++member) {
    if (!has_chunk(member)) {
      continue;
    }
    const int row = chunk_of_member(member);
    const Chunk chunk = p_.layout.slice(row, slice, slice_length_);
    const std::int64_t num_bytes = chunk.size() * element_bytes_;
    if (member != me) {
      copy(buffer + row * row_bytes, p_.input + chunk.begin * element_bytes_, num_bytes, Store::cached);
      bytes_sent_ += num_bytes;
    } else if (p_.kind == Collective::all_to_all) {
      const Chunk kept = p_.output_layout.slice(row, slice, slice_length_);
      copy(p_.output + kept.begin * element_bytes_, p_.input + chunk.begin * element_bytes_, num_bytes, store_);
    }
  }
}

void SharedExchange::reduce_slice(std::int64_t slice) {
  const int me = p_.members->index;
  if (!has_chunk(me)) {
    return;
  }
  const int size = p_.members->size();
  const auto buffer = static_cast<int>(slice % 2);
  const std::int64_t row_bytes = slice_length_ * element_bytes_;
  const int row = chunk_of_member(me);
  const Chunk own = p_.layout.slice(row, slice, slice_length_);
  if (own.size() == 0) {
    return;
  }
  for (int member = 0; member < size; ++member) {
    if (has_chunk(member)) {
      inputs_[static_cast<std::size_t>(chunk_of_member(member))] =
          member == me ? p_.input + own.begin * element_bytes_
                       : p_.members->area->stage(p_.channel, member, buffer) + row * row_bytes;
    }
  }
  std::byte* result = has_results() ? p_.members->area->result(p_.channel, me, buffer) : nullptr;
  if (p_.kind == Collective::reduce) {
    reduce(inputs_, result, Store::cached, nullptr, own.size(), p_.dtype, p_.reduction);
    bytes_sent_ += own.size() * element_bytes_;
    return;
  }
  const bool gathered = p_.kind == Collective::all_reduce;
  std::byte* output = p_.output + (gathered ? own.begin : own.begin - p_.layout.chunk(me).begin) * element_bytes_;
  reduce(inputs_, output, store_, result, own.size(), p_.dtype, p_.reduction);
  if (gathered) {
    bytes_sent_ += own.size() * element_bytes_ * (size - 1);
  }
}

void SharedExchange::gather(std::int64_t slice) {
  const int me = p_.members->index;
  const int size = p_.members->size();
  SharedArea& area = *p_.members->area;
  const auto buffer = static_cast<int>(slice % 2);
  const std::int64_t row_bytes = slice_length_ * element_bytes_;
  if (p_.kind == Collective::broadcast) {
    if (me != p_.peer) {
      const std::int64_t begin = slice * row_bytes;
      copy(p_.output + begin, area.stage(p_.channel, p_.peer, buffer),
           std::min(row_bytes, p_.layout.end * element_bytes_ - begin), store_);
    }
    return;
  }
  for (int distance = 1; distance < size; ++distance) {
    const int member = (me + distance) % size;  // members read different staging at a time
    const bool has_own_layout = p_.kind == Collective::all_to_all;
    const Chunk chunk = (has_own_layout ? p_.output_layout : p_.layout).slice(member, slice, slice_length_);
    const std::byte* source = nullptr;
    if (p_.kind == Collective::all_reduce) {
      source = area.result(p_.channel, member, buffer);
    } else if (p_.kind == Collective::all_gather) {
      source = area.stage(p_.channel, member, buffer);
    } else {
      source = area.stage(p_.channel, member, buffer) + me * row_bytes;
    }
    copy(p_.output + chunk.begin * element_bytes_, source, chunk.size() * element_bytes_, store_);
  }
}

/// The root of a reduce: what the others have reduced, and its own elements behind it.
void SharedExchange::add_results(std::int64_t slice) {
  if (p_.members->index != p_.peer) {
    return;
  }
  for (int member = 0; member < p_.members->size(); ++member) {
    if (!has_chunk(member)) {
      continue;
    }
    const Chunk chunk = p_.layout.slice(chunk_of_member(member), slice, slice_length_);
    const std::array<const std::byte*, 2> inputs{
        p_.members->area->result(p_.channel, member, static_cast<int>(slice % 2)),
        p_.input + chunk.begin * element_bytes_};
    reduce(inputs, p_.output + chunk.begin * element_bytes_, store_, nullptr, chunk.size(), p_.dtype, p_.reduction);
  }
}

}  // namespace strata::comm
