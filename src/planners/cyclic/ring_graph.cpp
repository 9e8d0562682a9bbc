#include "planners/cyclic/ring_graph.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "partition/fresh_table.hpp"
#include "partition/replica_ring.hpp"
#include "partition/ring_pace.hpp"

namespace strata {
namespace {

/// What happens once a training step, and takes its time.
class RingEvents {
 public:
  RingEvents(const Schedule& schedule, int num_stages, const std::vector<bool>& known, RingGraph& graph)
      : schedule_(schedule), num_stages_(num_stages), known_(known), graph_(graph) {
    const auto n = static_cast<std::size_t>(schedule.micro_batches);
    numbers_.assign((num_kinds_of_one_way + n) * n * static_cast<std::size_t>(num_stages), -1);
    for (int i = 0; i < schedule.micro_batches; ++i) rings_.push_back(replica_ring(schedule, num_stages_, i));
    for (const std::string& row : fresh_table(schedule, num_stages_)) {
      has_versions_ = has_versions_ || row.find('0') != std::string::npos;
    }
    for (int j = 0; j < num_stages_; ++j) has_versions_ = has_versions_ || !is_known(j);
    for (const ReplicaRing& ring : rings_) in_turn(on_compute_stream(ring));
    for (const ReplicaRing& ring : rings_) {
      add_sums(ring.replica);
      add_finished_sum(ring);
      for (int j = 0; j < num_stages_; ++j) add_parameters(ring.replica, j);
      if (const auto pace = ring_pace(schedule, num_stages_, ring.replica)) add_tokens(*pace);
    }
    add_order_of_parameters();
  }

 private:
  using Event = RingEvent;
  using Kind = RingEvent::Kind;
  /// One of each at most for a replica, whatever it goes to, and a stage.
  static constexpr auto num_kinds_of_one_way = static_cast<std::size_t>(Kind::parameters);
  bool is_known(int stage) const { return known_.empty() || known_[static_cast<std::size_t>(stage)]; }

  int number(const Event& event) {
    const auto from = static_cast<std::size_t>(event.from), to = static_cast<std::size_t>(event.to);
    const auto stage = static_cast<std::size_t>(event.stage);
    const std::size_t kind =
        event.kind == Kind::parameters ? num_kinds_of_one_way + to : static_cast<std::size_t>(event.kind);
    int& place = numbers_[(kind * rings_.size() + from) * static_cast<std::size_t>(num_stages_) + stage];
    if (place < 0) {
      place = static_cast<int>(graph_.events.size());
      graph_.events.push_back(event);
    }
    return place;
  }
  /// @p later begins when @p earlier, of so many training steps before, is over.
  void wait(const Event& later, const Event& earlier, int steps = 0) {
    const int from = number(earlier);
    graph_.waits.push_back({from, number(later), steps});
  }
  /// An event of a training step beside those of the step behind it.
  struct Turn {
    Event event;
    bool is_late = false;  ///< it is of the step before that of the others
  };
  /// One after the other, and again in the next step.
  void in_turn(const std::vector<Turn>& turns) {
    for (std::size_t t = 0; t < turns.size(); ++t) {
      const bool is_first = t == 0;
      const Turn& before = is_first ? turns.back() : turns[t - 1];
      const int late = (before.is_late ? 1 : 0) - (turns[t].is_late ? 1 : 0);
      wait(turns[t].event, before.event, late + (is_first ? 1 : 0));
    }
  }
  void in_turn(const std::vector<Event>& events) {
    std::vector<Turn> turns;
    for (const Event& event : events) turns.push_back({event});
    in_turn(turns);
  }

  bool adds_behind(int replica) const { return schedule_.sum == "after" && replica > 0; }
  /// The gradients of the stage are complete on the replica, and summed up with those from before.
  Event summed(int replica, int stage) const {
    return adds_behind(replica) ? addition(replica, stage) : backward(replica, stage);
  }
  /// The parameters are read for the last time in the step: for the gradient of the stage's input, which is made behind
  /// the addition, and which the first stage has not.
  Event last_read(int replica, int stage) const {
    return stage == 0 ? backward(replica, stage) : summed(replica, stage);
  }
  const ReplicaRing& ring_of(int replica) const { return rings_[static_cast<std::size_t>(replica)]; }
  bool is_last(int replica) const { return ring_of(replica).is_last(); }
  const ReplicaRing::OfStage& at(int replica, int stage) const {
    return ring_of(replica).stages[static_cast<std::size_t>(stage)];
  }
  static Event forward(int replica, int stage) { return {Kind::forward, replica, replica, stage}; }
  static Event backward(int replica, int stage) { return {Kind::backward, replica, replica, stage}; }
  static Event addition(int replica, int stage) { return {Kind::addition, replica, replica, stage}; }
  static Event update(int replica, int stage) { return {Kind::update, replica, replica, stage}; }
  static Event sum(int from, int stage) { return {Kind::sum, from, from + 1, stage}; }
  Event finished_sum(int stage) const {
    return {Kind::finished_sum, rings_.front().last(), at(0, stage).updater, stage};
  }
  static Event parameters(int from, int to, int stage) { return {Kind::parameters, from, to, stage}; }

  /// Of one training step.
  std::vector<Event> passes(int replica) const {
    std::vector<Event> all;
    for (int j = 0; j < num_stages_; ++j) all.push_back(forward(replica, j));
    for (int j = num_stages_; j-- > 0;) {
      all.push_back(backward(replica, j));
      if (adds_behind(replica)) all.push_back(addition(replica, j));
      if (ring_of(replica).updates(j) && !ring_of(replica).first_users_update) all.push_back(update(replica, j));
    }
    return all;
  }
  std::vector<Turn> on_compute_stream(const ReplicaRing& of) const {
    std::vector<Turn> all;
    for (const Event& event : passes(of.replica)) {
      const bool is_updated = of.first_users_update && event.kind == Kind::forward && of.updates(event.stage);
      if (is_updated) all.push_back({update(of.replica, event.stage), true});
      all.push_back({event});
    }
    return all;
  }

  /// To the next replica. The buffers of one training step are used again as many steps later as a body holds.
  void add_sums(int replica) {
    if (is_last(replica)) return;
    const bool inside = schedule_.sum == "inside";
    std::vector<Event> all;
    for (int j = num_stages_; j-- > 0;) {
      const Event here = sum(replica, j);
      all.push_back(here);
      wait(here, summed(replica, j));
      const int next = replica + 1;
      wait(summed(next, j), here);
      // It is awaited one pass ahead, when the passes before that one are over.
      const std::vector<Event> all_of_next = passes(next);
      const Event ahead = j + 1 == num_stages_ ? forward(next, j) : backward(next, j + 1);
      const auto pass_ahead = std::ranges::find_if(
          all_of_next, [&](const Event& e) { return e.kind == ahead.kind && e.stage == ahead.stage; });
      if (pass_ahead != all_of_next.begin()) wait(here, *(pass_ahead - 1));
      if (inside && !is_last(next)) wait(here, sum(next, j), steps_per_body());
      if (replica == 0 || !inside) wait(backward(replica, j), here, steps_per_body());
    }
    in_turn(all);
  }

  int steps_per_body() const { return has_versions_ ? 2 : 1; }

  /// From the last replica to @p of, where that one updates a stage.
  void add_finished_sum(const ReplicaRing& of) {
    if (of.is_last()) return;
    for (int j = 0; j < num_stages_; ++j) {
      if (!of.updates(j)) continue;
      const Event here = finished_sum(j);
      wait(here, summed(of.last(), j));
      wait(here, passes(of.replica).back());  // its memory is that of gradients before
      wait(here, here, 1);
      wait(update(of.replica, j), here);
      wait(schedule_.sum == "inside" ? sum(of.last() - 1, j) : backward(of.last(), j), here, steps_per_body());
    }
  }

  /// Of one stage, from @p replica on.
  void add_parameters(int replica, int stage) {
    if (!is_known(stage)) return;
    for (const ReplicaRing::Reader& reader : at(replica, stage).to) {
      const Event here = parameters(replica, reader.replica, stage);
      if (ring_of(replica).updates(stage)) {
        wait(here, update(replica, stage), 1);
        // Where parameters are updated in place they have been sent before; else those of the step before have.
        wait(update(replica, stage), here, at(replica, stage).num_versions - 1);
      } else {
        wait(here, parameters(at(replica, stage).from, replica, stage));
        const bool behind_forward = reader.arrival == Arrival::before_forward;
        if (schedule_.shift != "free") wait(here, behind_forward ? forward(replica, stage) : summed(replica, stage));
      }
      const bool reads_own_step = reader.arrival == Arrival::before_forward;
      wait(forward(reader.replica, stage), here, reads_own_step ? 0 : 1);
      // They come into a buffer that has been read, and whose last content has gone on.
      wait(here, last_read(reader.replica, stage), reader.arrival == Arrival::behind_backward ? 0 : 1);
      for (const ReplicaRing::Reader& next : at(reader.replica, stage).to) {
        wait(here, parameters(reader.replica, next.replica, stage), at(reader.replica, stage).num_versions);
      }
    }
  }

  /// Behind every pass, to the next replica, where a pass waits for it.
  void add_tokens(const RingPace& pace) {
    const auto pass_of = [&](int replica, int number) {
      return number < num_stages_ ? forward(replica, number) : backward(replica, 2 * num_stages_ - 1 - number);
    };
    std::vector<Event> all;
    for (int number = 0; number < pace.num_passes; ++number) {
      const Event pass = pass_of(pace.replica, number);
      const bool is_forward = pass.kind == Kind::forward;
      const Event here{is_forward ? Kind::token_of_forward : Kind::token_of_backward, pace.replica, pace.behind(),
                       pass.stage};
      all.push_back(here);
      wait(here, is_forward ? pass : summed(pace.replica, pass.stage));
      const RingPace::Pass waiting = pace.waiting(number);
      wait(pass_of(pace.behind(), waiting.number), here, waiting.step);
    }
    in_turn(all);
  }

  /// On one stream from one replica to another for each kind of arrival: from the last stage down, but where they go on
  /// behind a forward.
  void add_order_of_parameters() {
    std::map<std::tuple<int, int, Arrival>, std::vector<Event>> streams;
    for (const ReplicaRing& of : rings_) {
      for (int j = num_stages_; j-- > 0;) {
        if (!is_known(j)) continue;
        for (const auto& [reader, arrival] : at(of.replica, j).to) {
          streams[{of.replica, reader, of.link(j, of.replica, arrival)}].push_back(parameters(of.replica, reader, j));
        }
      }
    }
    for (auto& [key, events] : streams) {
      const auto& [from, to, link] = key;
      const bool from_update = is_last(from) && !ring_of(from).first_users_update;
      if (link == Arrival::before_forward && !from_update) std::ranges::reverse(events);
      in_turn(events);
    }
  }

  const Schedule& schedule_;
  int num_stages_;
  std::vector<ReplicaRing> rings_;
  bool has_versions_ = false;  ///< some stage is read in the version of the step before: a body holds two steps
  const std::vector<bool>& known_;
  RingGraph& graph_;
  std::vector<int> numbers_;  ///< by event
};

}  // namespace

RingGraph ring_graph(const Schedule& schedule, int num_stages, const std::vector<bool>& known) {
  RingGraph graph;
  const RingEvents events(schedule, num_stages, known, graph);
  return graph;
}

}  // namespace strata
