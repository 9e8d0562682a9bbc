#pragma once

/// @file
/// How often a process can repeat itself: events that happen once a repetition and wait for others of the same or an
/// earlier repetition. In the long run a repetition takes as long as the slowest cycle of such waits allows.

#include <vector>

namespace strata {

struct EventGraph {
  /// `to` happens no earlier than `seconds` after `from` did `repetitions` repetitions before.
  struct Edge {
    int from = 0;
    int to = 0;
    double seconds = 0.0;  ///< >= 0
    int repetitions = 0;   ///< < 0: of a later one, as events number their repetitions each for itself
  };
  int num_events = 0;
  std::vector<Edge> edges{};

  int add_event() { return num_events++; }
  void add_edge(int from, int to, double seconds, int repetitions = 0) {
    edges.push_back({from, to, seconds, repetitions});
  }
};

/// Seconds of a repetition in the long run: the most seconds for each repetition over all cycles, 0 where there is no
/// cycle. Howard's policy iteration, a strongly connected part after the other.
/// @throws InternalError for a cycle within one repetition, or back to a later one, whose events wait for themselves.
///
/// Source: Dasdan, Experimental Analysis of the Fastest Optimum Cycle Ratio and Mean Algorithms, TODAES 2004, sec. 3.6;
/// Baccelli et al., Synchronization and Linearity, 1992, ch. 2.
double maximum_cycle_ratio(const EventGraph& graph);

}  // namespace strata
