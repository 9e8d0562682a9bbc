/// @file
/// The slowest cycle of an event graph, against all of its cycles one by one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "cost/cycle_ratio.hpp"

namespace strata::test_cycle_ratio {
namespace {

/// Over every cycle that meets no event twice.
double by_enumeration(const EventGraph& graph) {
  double most = 0.0;
  std::vector<bool> is_on_way(static_cast<std::size_t>(graph.num_events), false);
  std::function<void(int, int, double, int)> go = [&](int first, int at, double seconds, int repetitions) {
    for (const EventGraph::Edge& edge : graph.edges) {
      if (edge.from != at || edge.to < first) continue;  // each cycle from its least event
      if (edge.to == first) most = std::max(most, (seconds + edge.seconds) / (repetitions + edge.repetitions));
      if (is_on_way[static_cast<std::size_t>(edge.to)]) continue;
      is_on_way[static_cast<std::size_t>(edge.to)] = true;
      go(first, edge.to, seconds + edge.seconds, repetitions + edge.repetitions);
      is_on_way[static_cast<std::size_t>(edge.to)] = false;
    }
  };
  for (int first = 0; first < graph.num_events; ++first) {
    is_on_way[static_cast<std::size_t>(first)] = true;
    go(first, first, 0.0, 0);
    is_on_way[static_cast<std::size_t>(first)] = false;
  }
  return most;
}

/// Edges within a repetition go to later events alone.
EventGraph random_graph(std::uint64_t stream) {
  const RandomStream random{.seed = 3, .stream = stream};
  std::uint64_t index = 0;
  const auto below = [&](int n) { return static_cast<int>(random.word(index++) % static_cast<std::uint32_t>(n)); };
  EventGraph graph{.num_events = 2 + below(6)};
  const int num_edges = 1 + below(3 * graph.num_events);
  for (int e = 0; e < num_edges; ++e) {
    const int from = below(graph.num_events), to = below(graph.num_events);
    // Some edges, and ratios, are equal.
    graph.add_edge(from, to,
                   below(2) == 0 ? static_cast<double>(below(4)) : static_cast<double>(random.uniform(index++)),
                   to > from ? below(3) : 1 + below(2));
  }
  return graph;
}

TEST(CycleRatio, IsThatOfTheSlowestCycle) {
  for (std::uint64_t stream = 0; stream < 3000; ++stream) {
    const EventGraph graph = random_graph(stream);
    const double expected = by_enumeration(graph);
    EXPECT_NEAR(maximum_cycle_ratio(graph), expected, 1e-12 * (1.0 + expected)) << stream;
  }
}

/// Where events number their repetitions in other ways, some wait for a later one, and no cycle is another.
TEST(CycleRatio, IsTheSameHoweverEventsNumberTheirRepetitions) {
  for (std::uint64_t stream = 0; stream < 300; ++stream) {
    EventGraph graph = random_graph(stream);
    const double expected = maximum_cycle_ratio(graph);
    const RandomStream random{.seed = 5, .stream = stream};
    for (EventGraph::Edge& edge : graph.edges) {
      const auto ahead = [&](int event) {
        return static_cast<int>(random.word(static_cast<std::uint64_t>(event)) % 5);
      };
      edge.repetitions += ahead(edge.to) - ahead(edge.from);
    }
    EXPECT_NEAR(maximum_cycle_ratio(graph), expected, 1e-12 * (1.0 + expected)) << stream;
  }
}

TEST(CycleRatio, OfWhatNeverRepeatsIsNone) {
  EventGraph graph{.num_events = 3};
  EXPECT_EQ(maximum_cycle_ratio(graph), 0.0);
  graph.add_edge(0, 1, 5.0);
  graph.add_edge(1, 2, 5.0, 1);
  EXPECT_EQ(maximum_cycle_ratio(graph), 0.0);
  graph.add_edge(2, 2, 0.0, 1);
  EXPECT_EQ(maximum_cycle_ratio(graph), 0.0);
}

TEST(CycleRatio, EventsThatWaitForThemselvesAreRefused) {
  EventGraph graph{.num_events = 3};
  graph.add_edge(0, 1, 1.0);
  graph.add_edge(1, 2, 0.0);
  graph.add_edge(1, 0, 0.0, 1);
  EXPECT_EQ(maximum_cycle_ratio(graph), 1.0);
  graph.add_edge(2, 0, 0.0);
  EXPECT_THROW(maximum_cycle_ratio(graph), InternalError);
  EventGraph loop{.num_events = 1};
  loop.add_edge(0, 0, 1.0);
  EXPECT_THROW(maximum_cycle_ratio(loop), InternalError);
  EventGraph later{.num_events = 2};  // one waits for a repetition of the other that waits for it
  later.add_edge(0, 1, 1.0, -2);
  later.add_edge(1, 0, 1.0, 1);
  EXPECT_THROW(maximum_cycle_ratio(later), InternalError);
  EventGraph back{.num_events = 2};
  back.add_edge(0, 1, -1.0, 1);
  EXPECT_THROW(maximum_cycle_ratio(back), InternalError);
}

}  // namespace
}  // namespace strata::test_cycle_ratio
