#include "lower/states/parameter_relay.hpp"

#include <algorithm>
#include <utility>

#include "lower/step/streams.hpp"

namespace strata {
namespace {

/// By item: the stage whose last item of @p pass it is, -1: of none.
std::vector<int> last_items(const StepOrder& order, Pass pass) {
  std::vector<int> stages(order.items.size(), -1);
  std::vector<bool> follows(static_cast<std::size_t>(order.shape.num_stages()), false);
  for (std::size_t i = order.items.size(); i-- > 0;) {
    const OrderItem& item = order.items[i];
    if (item.pass != pass) continue;
    const int stage = order.shape.segments[static_cast<std::size_t>(item.segment)].stage;
    if (!follows[static_cast<std::size_t>(stage)]) stages[i] = stage;
    follows[static_cast<std::size_t>(stage)] = true;
  }
  return stages;
}

/// By item: the stage whose forward it begins, -1: none.
std::vector<int> first_items_of_forward(const StepOrder& order) {
  std::vector<int> stages(order.items.size(), -1);
  std::vector<bool> begins(static_cast<std::size_t>(order.shape.num_stages()), true);
  for (std::size_t i = 0; i < order.items.size(); ++i) {
    const OrderItem& item = order.items[i];
    if (item.pass != Pass::forward) continue;
    const int stage = order.shape.segments[static_cast<std::size_t>(item.segment)].stage;
    if (begins[static_cast<std::size_t>(stage)]) stages[i] = stage;
    begins[static_cast<std::size_t>(stage)] = false;
  }
  return stages;
}

/// True if @p item updates all parameters of stage @p stage.
bool updates_stage(const OrderItem& item, const StepShape& shape, int stage) {
  if (item.pass != Pass::update) return false;
  return std::ranges::all_of(parameters_of_stage(shape, stage),
                             [&](int p) { return std::ranges::find(item.parameters, p) != item.parameters.end(); });
}

/// To which training step the messages of θ_t belong that reach a replica among the items of step t, relative to that.
int step_of_messages(Arrival arrival) { return arrival == Arrival::behind_backward ? 0 : -1; }

}  // namespace

ParameterRelay::ParameterRelay(const RingLinks& links, const ModelGraph& graph, const StepOrder& order, int step,
                               const HeldParameters& held, ProgramBuilder& builder)
    : links_(links),
      ring_(links.ring),
      graph_(graph),
      order_(order),
      shape_(order.shape),
      step_(step),
      held_(held),
      builder_(builder),
      begins_forward_(first_items_of_forward(order)),
      ends_forward_(last_items(order, Pass::forward)),
      ends_backward_(last_items(order, Pass::backward)) {}

void ParameterRelay::at_beginning(const Place& here) {
  const int num_stages = shape_.num_stages();
  for (int j = num_stages; j-- > 0;) {
    const ReplicaRing::OfStage& stage = at(j);
    if (ring_.updates(j) && !ring_.first_users_update) send(here, j, Arrival::behind_backward, step_, 0);
    const bool fresh_from_update = stage.arrival == Arrival::before_forward && stage.from == stage.updater;
    if (fresh_from_update || stage.arrival == Arrival::in_spare_buffer) receive(here, j);
  }
  for (int j = 0; j < num_stages; ++j) {
    if (at(j).arrival == Arrival::before_forward && at(j).from != at(j).updater) receive(here, j);
  }
}

void ParameterRelay::before_item(const Place& here, int item) {
  const int j = begins_forward_[static_cast<std::size_t>(item)];
  if (j >= 0 && ring_.updates(j) && ring_.first_users_update) send(here, j, Arrival::behind_backward, step_, 0);
}

void ParameterRelay::behind_item(const Place& here, int item) {
  const int last = here.last_on(compute_stream);
  const std::span<const int> after(&last, links_.pace ? 1 : 0);
  // θ_t of this training step, which this rank has received, to the next ones.
  const auto hand_on = [&](int j, Arrival arrival) { send(here, j, arrival, step_, step_of_messages(arrival), after); };
  const auto goes_on = [&](int j) { return j >= 0 && !ring_.updates(j); };
  if (const int j = ends_forward_[static_cast<std::size_t>(item)]; goes_on(j)) {
    hand_on(j, Arrival::before_forward);
  }
  if (const int j = ends_backward_[static_cast<std::size_t>(item)]; goes_on(j)) {
    if (at(j).arrival == Arrival::behind_backward) receive(here, j);
    hand_on(j, Arrival::in_spare_buffer);
    hand_on(j, Arrival::behind_backward);
  }
}

void ParameterRelay::behind_update(const Place& here, int item) {
  for (int j = shape_.num_stages(); j-- > 0;) {
    if (!updates_stage(order_.items[static_cast<std::size_t>(item)], shape_, j)) continue;
    for (const Arrival arrival : {Arrival::before_forward, Arrival::in_spare_buffer}) {
      send(here, j, arrival, step_ + 1, 0);
    }
  }
}

Instruction ParameterRelay::message(Collective kind, int stage, int peer, Arrival arrival, int parameter) const {
  const bool sends = kind == Collective::send;
  const int from = sends ? ring_.replica : peer, to = sends ? peer : ring_.replica;
  const Arrival link = ring_.link(stage, from, arrival);
  return {.kernel = Kernel::none,
          .collective = kind,
          .group = links_.groups.at(link),
          .root = peer,
          .stream = links_.stream_of_parameters(from, to, link),
          .phase = Phase::update,
          .name = graph_.parameters[static_cast<std::size_t>(parameter)].name};
}

void ParameterRelay::send(const Place& here, int stage, Arrival arrival, int version, int step,
                          std::span<const int> after) {
  for (const ReplicaRing::Reader& reader : at(stage).to) {
    if (reader.arrival != arrival) continue;
    for (const int p : parameters_of_stage(shape_, stage)) {
      Instruction in = message(Collective::send, stage, reader.replica, arrival, p);
      in.step = step;
      in.inputs = {builder_.whole(held_.buffers.weight(p, version))};
      here.emit(std::move(in), after);
    }
  }
}

void ParameterRelay::receive(const Place& here, int stage) {
  const Arrival arrival = at(stage).arrival;
  for (const int p : parameters_of_stage(shape_, stage)) {
    Instruction in = message(Collective::recv, stage, at(stage).from, arrival, p);
    in.step = step_of_messages(arrival);
    in.outputs = {builder_.whole(held_.buffers.weight(p, step_))};
    if (arrival != Arrival::before_forward) in.attributes = {{"version", 1}};
    here.emit(std::move(in));
  }
}

}  // namespace strata
