#include "planners/cyclic/ring_period.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "partition/fresh_table.hpp"
#include "partition/replica_ring.hpp"

namespace strata {
namespace {

/// What happens once a training step, and takes its time.
class RingEvents {
 public:
  RingEvents(const Schedule& schedule, std::span<const StageSeconds> stages, const std::vector<bool>& known)
      : schedule_(schedule), stages_(stages), num_stages_(static_cast<int>(stages.size())), known_(known) {
    const auto n = static_cast<std::size_t>(schedule.micro_batches);
    numbers_.assign((num_kinds_of_passes + n) * n * stages.size(), -1);
    for (int i = 0; i < schedule.micro_batches; ++i) rings_.push_back(replica_ring(schedule, num_stages_, i));
    for (const std::string& row : fresh_table(schedule, num_stages_)) {
      has_versions_ = has_versions_ || row.find('0') != std::string::npos;
    }
    for (int j = 0; j < num_stages_; ++j) has_versions_ = has_versions_ || !is_known(j);
    for (const ReplicaRing& ring : rings_) add_passes(ring.replica);
    for (const ReplicaRing& ring : rings_) {
      add_sums(ring.replica);
      for (int j = 0; j < num_stages_; ++j) add_parameters(ring.replica, j);
    }
    add_order_of_parameters();
  }

  EventGraph take() && { return std::move(graph_); }

 private:
  enum class Kind : std::uint8_t { forward, backward, addition, update, sum, parameters };
  static constexpr std::size_t num_kinds_of_passes = 5;  ///< of one replica, and its sums to the next one
  struct Event {
    Kind kind;
    int from = 0;  ///< replica
    int to = 0;    ///< of a message; else the same
    int stage = 0;
  };
  bool is_known(int stage) const { return known_.empty() || known_[static_cast<std::size_t>(stage)]; }

  double seconds(const Event& event) const {
    const StageSeconds& stage = stages_[static_cast<std::size_t>(event.stage)];
    switch (event.kind) {
      case Kind::forward: return stage.forward;
      case Kind::backward: return stage.backward;
      case Kind::addition: return stage.addition;
      case Kind::update: return stage.update;
      case Kind::sum: return stage.sum;
      case Kind::parameters: return stage.parameters;
    }
    return 0.0;
  }
  int number(const Event& event) {
    const auto from = static_cast<std::size_t>(event.from), to = static_cast<std::size_t>(event.to);
    const auto stage = static_cast<std::size_t>(event.stage);
    const std::size_t kind =
        event.kind == Kind::parameters ? num_kinds_of_passes + to : static_cast<std::size_t>(event.kind);
    int& place = numbers_[(kind * rings_.size() + from) * stages_.size() + stage];
    if (place < 0) place = graph_.add_event();
    return place;
  }
  /// @p later begins when @p earlier, of so many training steps before, is over.
  void wait(const Event& later, const Event& earlier, int steps = 0) {
    graph_.add_edge(number(earlier), number(later), seconds(earlier), steps);
  }
  /// One after the other, and again in the next step.
  void in_turn(const std::vector<Event>& events) {
    for (std::size_t e = 0; e < events.size(); ++e) {
      const bool is_first = e == 0;
      wait(events[e], is_first ? events.back() : events[e - 1], is_first ? 1 : 0);
    }
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
  bool updates(int replica) const { return replica + 1 == std::ssize(rings_); }
  const ReplicaRing::OfStage& at(int replica, int stage) const {
    return rings_[static_cast<std::size_t>(replica)].stages[static_cast<std::size_t>(stage)];
  }
  static Event forward(int replica, int stage) { return {Kind::forward, replica, replica, stage}; }
  static Event backward(int replica, int stage) { return {Kind::backward, replica, replica, stage}; }
  static Event addition(int replica, int stage) { return {Kind::addition, replica, replica, stage}; }
  static Event update(int replica, int stage) { return {Kind::update, replica, replica, stage}; }
  static Event sum(int from, int stage) { return {Kind::sum, from, from + 1, stage}; }
  static Event parameters(int from, int to, int stage) { return {Kind::parameters, from, to, stage}; }

  /// As the compute stream has them.
  std::vector<Event> passes(int replica) const {
    std::vector<Event> all;
    for (int j = 0; j < num_stages_; ++j) all.push_back(forward(replica, j));
    for (int j = num_stages_; j-- > 0;) {
      all.push_back(backward(replica, j));
      if (adds_behind(replica)) all.push_back(addition(replica, j));
      if (updates(replica)) all.push_back(update(replica, j));
    }
    return all;
  }
  void add_passes(int replica) { in_turn(passes(replica)); }

  /// To the next replica. The buffers of one training step are used again as many steps later as a body holds.
  void add_sums(int replica) {
    if (updates(replica)) return;
    const int steps_per_body = has_versions_ ? 2 : 1;
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
      if (inside && !updates(next)) wait(here, sum(next, j), steps_per_body);
      if (replica == 0 || !inside) wait(backward(replica, j), here, steps_per_body);
    }
    in_turn(all);
  }

  /// Of one stage, from @p replica on.
  void add_parameters(int replica, int stage) {
    if (!is_known(stage)) return;
    for (const ReplicaRing::Reader& reader : at(replica, stage).to) {
      const Event here = parameters(replica, reader.replica, stage);
      if (updates(replica)) {
        wait(here, update(replica, stage), 1);
        // Where parameters are updated in place they have been sent before; else those of the step before have.
        wait(update(replica, stage), here, at(replica, stage).num_versions - 1);
      } else {
        wait(here, parameters(at(replica, stage).from, replica, stage));
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

  /// On one stream from one replica to another for each kind of arrival: from the last stage down, but where they go on
  /// behind a forward.
  void add_order_of_parameters() {
    std::map<std::tuple<int, int, Arrival>, std::vector<Event>> streams;
    for (const ReplicaRing& ring : rings_) {
      for (int j = num_stages_; j-- > 0;) {
        if (!is_known(j)) continue;
        for (const auto& [reader, arrival] : at(ring.replica, j).to) {
          streams[{ring.replica, reader, arrival}].push_back(parameters(ring.replica, reader, j));
        }
      }
    }
    for (auto& [key, events] : streams) {
      const auto& [from, to, arrival] = key;
      if (arrival == Arrival::before_forward && !updates(from)) std::ranges::reverse(events);
      in_turn(events);
    }
  }

  const Schedule& schedule_;
  std::span<const StageSeconds> stages_;
  int num_stages_;
  std::vector<ReplicaRing> rings_;
  bool has_versions_ = false;  ///< some stage is read in the version of the step before: a body holds two steps
  EventGraph graph_;
  const std::vector<bool>& known_;
  std::vector<int> numbers_;  ///< by event
};

}  // namespace

EventGraph ring_events(const Schedule& schedule, std::span<const StageSeconds> stages, const std::vector<bool>& known) {
  return RingEvents(schedule, stages, known).take();
}

double ring_period(const Schedule& schedule, std::span<const StageSeconds> stages, const std::vector<bool>& known) {
  return maximum_cycle_ratio(ring_events(schedule, stages, known));
}

}  // namespace strata
