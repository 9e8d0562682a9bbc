#include "ir/program/happens_before.hpp"

#include <algorithm>

namespace strata {

HappensBefore::HappensBefore(int num_streams)
    : num_streams_(num_streams), last_(static_cast<std::size_t>(num_streams), -1) {}

HappensBefore::HappensBefore(const InstructionList& list, int num_streams) : HappensBefore(num_streams) {
  stream_.reserve(list.size());
  started_.reserve(list.size() * static_cast<std::size_t>(num_streams));
  for (std::size_t i = 0; i < list.size(); ++i) append(list[i].stream, list.waits(i));
}

void HappensBefore::join(std::size_t into, int completed) {
  const auto width = static_cast<std::size_t>(num_streams_);
  const auto from = static_cast<std::size_t>(completed) * width;
  for (std::size_t s = 0; s < width; ++s) {
    started_[into + s] = std::max(started_[into + s], started_[from + s]);
  }
  const auto own = static_cast<std::size_t>(stream_[static_cast<std::size_t>(completed)]);
  started_[into + own] = std::max(started_[into + own], completed);
}

void HappensBefore::append(int stream, std::span<const Wait> waits) {
  const std::size_t into = started_.size();
  started_.resize(into + static_cast<std::size_t>(num_streams_), -1);
  int& last = last_[static_cast<std::size_t>(stream)];
  if (last >= 0) {
    join(into, last);
  }
  for (const Wait& wait : waits) {
    if (wait.lag == 0) {
      join(into, wait.instruction);
    }
  }
  last = static_cast<int>(stream_.size());
  stream_.push_back(stream);
}

bool HappensBefore::ordered_before_next(int earlier, int stream) const {
  const int last = last_[static_cast<std::size_t>(stream)];
  return last >= 0 && (earlier == last || ordered(earlier, last));
}

}  // namespace strata
