#include "lower/states/ring_links.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

std::string name_of_sums(int from, int to) { return fmt::format("sums{}to{}", from, to); }

std::string name_of_tokens(int from, int to) { return fmt::format("pace{}to{}", from, to); }

std::string name_of_parameters(int from, int to, Arrival arrival) {
  return fmt::format("{}{}to{}", word_of(arrival), from, to);
}

}  // namespace

std::string_view word_of(Arrival arrival) {
  switch (arrival) {
    case Arrival::by_update: return "update";
    case Arrival::before_forward: return "fresh";
    case Arrival::behind_backward: return "behind";
    case Arrival::in_spare_buffer: return "spare";
  }
  return "?";
}

RingLinks::RingLinks(ReplicaRing of_ring, std::optional<RingPace> of_pace, int first_stream)
    : ring(std::move(of_ring)), pace(of_pace), first_stream_(first_stream) {
  for (const Arrival arrival : ring.arrivals) groups.emplace(arrival, -1);
  const auto add = [&](std::string name) {
    if (std::ranges::find(streams, name) == streams.end()) streams.push_back(std::move(name));
  };
  if (ring.sums_from() >= 0) add(name_of_sums(ring.sums_from(), ring.replica));
  if (ring.sums_to() >= 0) add(name_of_sums(ring.replica, ring.sums_to()));
  for (int j = 0; j < static_cast<int>(ring.stages.size()); ++j) {
    const ReplicaRing::OfStage& stage = ring.stages[static_cast<std::size_t>(j)];
    if (const int from = ring.whole_sum_from(j); from >= 0) add(name_of_sums(from, ring.replica));
    if (const int to = ring.whole_sum_to(j); to >= 0) add(name_of_sums(ring.replica, to));
    if (stage.from >= 0) {
      add(name_of_parameters(stage.from, ring.replica, ring.link(j, stage.from, stage.arrival)));
    }
    for (const auto& [reader, arrival] : stage.to) {
      add(name_of_parameters(ring.replica, reader, ring.link(j, ring.replica, arrival)));
    }
  }
  if (!pace) return;
  add(name_of_tokens(pace->before(), ring.replica));
  add(name_of_tokens(ring.replica, pace->behind()));
}

int RingLinks::stream_of_sums(int from, int to) const { return number_of(name_of_sums(from, to)); }

int RingLinks::stream_of_parameters(int from, int to, Arrival arrival) const {
  return number_of(name_of_parameters(from, to, arrival));
}

int RingLinks::stream_of_tokens(int from, int to) const { return number_of(name_of_tokens(from, to)); }

int RingLinks::number_of(const std::string& name) const {
  const auto at = std::ranges::find(streams, name);
  STRATA_INVARIANT(at != streams.end(), "no stream " + name);
  return first_stream_ + static_cast<int>(at - streams.begin());
}

}  // namespace strata
