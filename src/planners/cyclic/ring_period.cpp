#include "planners/cyclic/ring_period.hpp"

#include <cstddef>

#include "planners/cyclic/ring_graph.hpp"

namespace strata {
namespace {

double seconds_of(const RingEvent& event, std::span<const StageSeconds> stages) {
  const StageSeconds& stage = stages[static_cast<std::size_t>(event.stage)];
  switch (event.kind) {
    case RingEvent::Kind::forward: return stage.forward;
    case RingEvent::Kind::backward: return stage.backward;
    case RingEvent::Kind::addition: return stage.addition;
    case RingEvent::Kind::update: return stage.update;
    case RingEvent::Kind::sum:
    case RingEvent::Kind::finished_sum: return stage.sum;
    case RingEvent::Kind::parameters: return stage.parameters;
    case RingEvent::Kind::token_of_forward:
    case RingEvent::Kind::token_of_backward: return stage.token;
  }
  return 0.0;
}

}  // namespace

EventGraph ring_events(const Schedule& schedule, std::span<const StageSeconds> stages, const std::vector<bool>& known) {
  const RingGraph ring = ring_graph(schedule, static_cast<int>(stages.size()), known);
  EventGraph graph{.num_events = static_cast<int>(ring.events.size())};
  for (const RingGraph::Wait& wait : ring.waits) {
    const RingEvent& earlier = ring.events[static_cast<std::size_t>(wait.from)];
    graph.add_edge(wait.from, wait.to, seconds_of(earlier, stages), wait.steps);
  }
  return graph;
}

double ring_period(const Schedule& schedule, std::span<const StageSeconds> stages, const std::vector<bool>& known) {
  return maximum_cycle_ratio(ring_events(schedule, stages, known));
}

}  // namespace strata
