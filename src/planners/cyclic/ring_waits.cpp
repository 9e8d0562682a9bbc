#include "planners/cyclic/ring_waits.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.hpp"

namespace strata {
namespace {

/// By event: its place in an order in which events of a step are behind those of it that they wait for.
std::vector<int> places(const RingGraph& graph) {
  std::vector<std::vector<int>> behind(graph.events.size());
  std::vector<int> num_awaited(graph.events.size(), 0);
  for (const RingGraph::Wait& wait : graph.waits) {
    if (wait.steps > 0) continue;
    STRATA_INVARIANT(wait.steps == 0, "a wait for a later step");
    behind[static_cast<std::size_t>(wait.from)].push_back(wait.to);
    ++num_awaited[static_cast<std::size_t>(wait.to)];
  }
  std::vector<int> order, place(graph.events.size(), 0);
  for (std::size_t e = 0; e < graph.events.size(); ++e) {
    if (num_awaited[e] == 0) order.push_back(static_cast<int>(e));
  }
  for (std::size_t next = 0; next < order.size(); ++next) {
    place[static_cast<std::size_t>(order[next])] = static_cast<int>(next);
    for (const int to : behind[static_cast<std::size_t>(order[next])]) {
      if (--num_awaited[static_cast<std::size_t>(to)] == 0) order.push_back(to);
    }
  }
  STRATA_INVARIANT(order.size() == graph.events.size(), "events of one step wait for each other");
  return place;
}

}  // namespace

RingWaits::RingWaits(RingGraph graph)
    : graph_(std::move(graph)),
      lengths_(graph_.waits.size()),
      begins_(graph_.events.size()),
      after_(graph_.events.size()),
      seen_(graph_.events.size()) {
  const std::vector<int> place = places(graph_);
  std::ranges::stable_sort(graph_.waits, {},
                           [&](const RingGraph::Wait& wait) { return place[static_cast<std::size_t>(wait.from)]; });
}

bool RingWaits::may_hold(const BoxSeconds& seconds, double limit) {
  for (std::size_t w = 0; w < lengths_.size(); ++w) {
    const RingGraph::Wait& wait = graph_.waits[w];
    const RingEvent& from = graph_.events[static_cast<std::size_t>(wait.from)];
    const RingEvent& to = graph_.events[static_cast<std::size_t>(wait.to)];
    lengths_[w] = seconds(from, to) - wait.steps * limit;
  }
  begins_.assign(begins_.size(), 0.0);
  after_.assign(after_.size(), -1);
  const double rounding = 1e-13 * limit;
  for (int round = 0;; ++round) {
    bool changes = false;
    for (std::size_t w = 0; w < lengths_.size(); ++w) {
      const auto from = static_cast<std::size_t>(graph_.waits[w].from),
                 to = static_cast<std::size_t>(graph_.waits[w].to);
      const double begin = begins_[from] + lengths_[w];
      if (begin <= begins_[to] + rounding) continue;
      begins_[to] = begin;
      after_[to] = static_cast<int>(w);
      changes = true;
    }
    if (!changes) return true;
    if (round >= 1 && has_cycle()) return false;
  }
}

/// Of events that are each because of the one before: it takes longer than its steps.
bool RingWaits::has_cycle() {
  seen_.assign(seen_.size(), -1);
  for (int first = 0; first < static_cast<int>(seen_.size()); ++first) {
    int event = first;
    while (event >= 0 && seen_[static_cast<std::size_t>(event)] < 0) {
      seen_[static_cast<std::size_t>(event)] = first;
      const int wait = after_[static_cast<std::size_t>(event)];
      event = wait < 0 ? -1 : graph_.waits[static_cast<std::size_t>(wait)].from;
    }
    if (event >= 0 && seen_[static_cast<std::size_t>(event)] == first) return true;
  }
  return false;
}

}  // namespace strata
