#include "cost/cycle_ratio.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/error.hpp"

namespace strata {
namespace {

using Edge = EventGraph::Edge;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// By event: the number of the strongly connected part that it is in (Tarjan's algorithm with a stack of its own, since
/// graphs are as deep as they have events).
class StronglyConnected {
 public:
  explicit StronglyConnected(const EventGraph& graph)
      : out_(index(graph.num_events)), part_(index(graph.num_events), -1), number_(part_), low_(part_) {
    for (const Edge& edge : graph.edges) out_[index(edge.from)].push_back(edge.to);
    for (int event = 0; event < graph.num_events; ++event) {
      if (number_[index(event)] < 0) visit(event);
    }
  }
  int num_parts() const { return num_parts_; }
  int of(int event) const { return part_[index(event)]; }

 private:
  struct Visit {
    int event = 0;
    std::size_t next = 0;  ///< of its edges
  };

  void enter(int event) {
    number_[index(event)] = low_[index(event)] = next_number_++;
    open_.push_back(event);
    visits_.push_back({event, 0});
  }

  void visit(int first) {
    enter(first);
    while (!visits_.empty()) {
      const int event = visits_.back().event;
      int& low = low_[index(event)];
      if (visits_.back().next < out_[index(event)].size()) {
        const int to = out_[index(event)][visits_.back().next++];
        if (number_[index(to)] < 0) {
          enter(to);
        } else if (part_[index(to)] < 0) {
          low = std::min(low, number_[index(to)]);
        }
        continue;
      }
      visits_.pop_back();
      if (!visits_.empty()) {
        int& low_before = low_[index(visits_.back().event)];
        low_before = std::min(low_before, low);
      }
      if (low == number_[index(event)]) close(event);
    }
  }

  void close(int event) {
    int last = -1;
    while (last != event) {
      last = open_.back();
      open_.pop_back();
      part_[index(last)] = num_parts_;
    }
    ++num_parts_;
  }

  std::vector<std::vector<int>> out_;
  std::vector<int> part_, number_, low_;
  std::vector<int> open_;  ///< events whose part is not known yet
  std::vector<Visit> visits_;
  int next_number_ = 0;
  int num_parts_ = 0;
};

/// Of one strongly connected part, which has an edge: every event of it has one that stays in it.
class Howard {
 public:
  /// @param events of the part.  @param edges of the graph, of which those at @p own stay in the part.
  Howard(std::span<const int> events, const std::vector<Edge>& edges, std::span<const std::size_t> own, int num_events)
      : events_(events),
        edges_(edges),
        own_(own),
        policy_(index(num_events), 0),
        value_(index(num_events), 0.0),
        leads_(index(num_events), false) {
    std::vector<bool> has_policy(index(num_events), false);
    for (const std::size_t e : own_) {
      const auto from = index(edges_[e].from);
      if (has_policy[from] && edges_[e].seconds <= edges_[policy_[from]].seconds) continue;
      policy_[from] = e;
      has_policy[from] = true;
    }
  }

  double ratio() {
    double longest = 0.0;
    for (const std::size_t e : own_) longest = std::max(longest, edges_[e].seconds);
    const double least_gain = 1e-13 * longest * static_cast<double>(events_.size());
    for (;;) {
      const Cycle best = best_cycle();
      lead_to(best);
      std::vector<double> longest_way = value_;
      bool is_better = false;
      for (const std::size_t e : own_) {
        const Edge& edge = edges_[e];
        const double way = length(edge, best.ratio) + value_[index(edge.to)];
        if (way <= longest_way[index(edge.from)] + least_gain) continue;
        longest_way[index(edge.from)] = way;
        policy_[index(edge.from)] = e;
        is_better = true;
      }
      if (!is_better) return best.ratio;
    }
  }

 private:
  struct Cycle {
    int event = -1;
    double ratio = -1.0;
  };
  static double length(const Edge& edge, double ratio) { return edge.seconds - ratio * edge.repetitions; }
  const Edge& policy(int event) const { return edges_[policy_[index(event)]]; }

  /// Of those that the policy's edges make, one a component.
  Cycle best_cycle() {
    Cycle best;
    std::vector<int> seen_from(policy_.size(), -1);
    for (const int first : events_) {
      int event = first;
      while (seen_from[index(event)] < 0) {
        seen_from[index(event)] = first;
        event = policy(event).to;
      }
      if (seen_from[index(event)] != first) continue;  // it leads to a cycle that is known
      double seconds = 0.0;
      int repetitions = 0;
      const int begin = event;
      do {
        seconds += policy(event).seconds;
        repetitions += policy(event).repetitions;
        event = policy(event).to;
      } while (event != begin);
      const double ratio = seconds / repetitions;
      if (ratio > best.ratio) best = {begin, ratio};
    }
    return best;
  }

  /// The policy of every event leads to @p cycle: where it did not, by an edge that does. Values are the lengths of
  /// these ways.
  void lead_to(const Cycle& cycle) {
    std::vector<std::vector<std::size_t>> in(policy_.size());  // by event: edges
    for (const std::size_t e : own_) {
      if (policy_[index(edges_[e].from)] != e) in[index(edges_[e].to)].push_back(e);
    }
    for (const int event : events_) in[index(policy(event).to)].push_back(policy_[index(event)]);
    leads_.assign(leads_.size(), false);
    leads_[index(cycle.event)] = true;
    value_[index(cycle.event)] = 0.0;
    std::vector<int> reached = {cycle.event};
    const auto follow = [&](bool along_policy) {
      for (std::size_t i = 0; i < reached.size(); ++i) {
        const int to = reached[i];
        for (const std::size_t e : in[index(to)]) {
          const int from = edges_[e].from;
          if (leads_[index(from)] || (along_policy && policy_[index(from)] != e)) continue;
          leads_[index(from)] = true;
          policy_[index(from)] = e;
          value_[index(from)] = length(edges_[e], cycle.ratio) + value_[index(to)];
          reached.push_back(from);
        }
      }
    };
    follow(true);
    follow(false);
  }

  std::span<const int> events_;
  const std::vector<Edge>& edges_;
  std::span<const std::size_t> own_;
  std::vector<std::size_t> policy_;  ///< by event: the edge that it takes
  std::vector<double> value_;        ///< by event
  std::vector<bool> leads_;          ///< by event
};

/// The same graph where every event numbers its repetitions so that none waits for a later one: as many more a cycle as
/// fewer (Bellman and Ford).
EventGraph without_later_repetitions(EventGraph graph) {
  std::vector<int> ahead(index(graph.num_events), 0);  // by event: how much higher its numbers are
  bool changes = true;
  for (int round = 0; changes; ++round) {
    STRATA_INVARIANT(round <= graph.num_events, "events wait for later repetitions of themselves");
    changes = false;
    for (const Edge& edge : graph.edges) {
      const int most = ahead[index(edge.to)] + edge.repetitions;
      if (ahead[index(edge.from)] <= most) continue;
      ahead[index(edge.from)] = most;
      changes = true;
    }
  }
  for (Edge& edge : graph.edges) edge.repetitions += ahead[index(edge.to)] - ahead[index(edge.from)];
  return graph;
}

/// Their cycles have no ratio.
void refuse_cycles_within_a_repetition(const EventGraph& graph) {
  EventGraph within{.num_events = graph.num_events};
  for (const Edge& edge : graph.edges) {
    STRATA_INVARIANT(edge.seconds >= 0.0 && edge.repetitions >= 0, "an edge back in time");
    if (edge.repetitions > 0) continue;
    STRATA_INVARIANT(edge.from != edge.to, "an event waits for itself");
    within.edges.push_back(edge);
  }
  STRATA_INVARIANT(StronglyConnected(within).num_parts() == graph.num_events,
                   "events of one repetition wait for each other");
}

}  // namespace

double maximum_cycle_ratio(const EventGraph& events_as_numbered) {
  const EventGraph graph = without_later_repetitions(events_as_numbered);
  refuse_cycles_within_a_repetition(graph);
  const StronglyConnected parts(graph);
  std::vector<std::vector<int>> events(index(parts.num_parts()));
  std::vector<std::vector<std::size_t>> own(index(parts.num_parts()));
  for (int event = 0; event < graph.num_events; ++event) events[index(parts.of(event))].push_back(event);
  for (std::size_t e = 0; e < graph.edges.size(); ++e) {
    const Edge& edge = graph.edges[e];
    if (parts.of(edge.from) == parts.of(edge.to)) own[index(parts.of(edge.from))].push_back(e);
  }
  double most = 0.0;
  for (std::size_t p = 0; p < own.size(); ++p) {
    if (!own[p].empty()) most = std::max(most, Howard(events[p], graph.edges, own[p], graph.num_events).ratio());
  }
  return most;
}

}  // namespace strata
