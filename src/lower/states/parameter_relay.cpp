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

}  // namespace

ParameterRelay::ParameterRelay(const RingLinks& links, const ModelGraph& graph, const StepOrder& order, int step,
                               const HeldParameters& held, ProgramBuilder& builder)
    : links_(links),
      ring_(links.ring),
      graph_(graph),
      shape_(order.shape),
      step_(step),
      held_(held),
      builder_(builder),
      begins_forward_(first_items_of_forward(order)),
      ends_forward_(last_items(order, Pass::forward)),
      ends_backward_(last_items(order, Pass::backward)) {}

void ParameterRelay::at_beginning() {
  const int num_stages = shape_.num_stages();
  for (int j = num_stages; j-- > 0;) {
    const ReplicaRing::OfStage& stage = at(j);
    if (ring_.updates(j) && !ring_.first_users_update) send_updated(j);
    const bool fresh_from_update = stage.arrival == Arrival::before_forward && stage.from == stage.updater;
    if (fresh_from_update || stage.arrival == Arrival::in_spare_buffer) receive(j);
  }
  for (int j = 0; j < num_stages; ++j) {
    if (at(j).arrival == Arrival::before_forward && at(j).from != at(j).updater) receive(j);
  }
}

void ParameterRelay::before_item(int item) {
  const int j = begins_forward_[static_cast<std::size_t>(item)];
  if (j >= 0 && ring_.updates(j) && ring_.first_users_update) send_updated(j);
}

void ParameterRelay::send_updated(int stage) {
  for (const Arrival arrival : {Arrival::before_forward, Arrival::in_spare_buffer, Arrival::behind_backward}) {
    send(stage, arrival);
  }
}

void ParameterRelay::behind_item(int item) {
  const int last = builder_.last_on(compute_stream);
  const std::span<const int> after(&last, links_.pace ? 1 : 0);
  const auto hands_on = [&](int j) { return j >= 0 && !ring_.updates(j); };
  if (const int j = ends_forward_[static_cast<std::size_t>(item)]; hands_on(j)) send(j, Arrival::before_forward, after);
  if (const int j = ends_backward_[static_cast<std::size_t>(item)]; hands_on(j)) {
    if (at(j).arrival == Arrival::behind_backward) receive(j);
    send(j, Arrival::in_spare_buffer, after);
    send(j, Arrival::behind_backward, after);
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

void ParameterRelay::send(int stage, Arrival arrival, std::span<const int> after) {
  for (const ReplicaRing::Reader& reader : at(stage).to) {
    if (reader.arrival != arrival) continue;
    for (const int p : parameters_of_stage(shape_, stage)) {
      Instruction in = message(Collective::send, stage, reader.replica, arrival, p);
      in.inputs = {builder_.whole(held_.buffers.weight(p, step_))};
      builder_.emit(std::move(in), after);
    }
  }
}

void ParameterRelay::receive(int stage) {
  for (const int p : parameters_of_stage(shape_, stage)) {
    Instruction in = message(Collective::recv, stage, at(stage).from, at(stage).arrival, p);
    in.outputs = {builder_.whole(held_.buffers.weight(p, step_))};
    builder_.emit(std::move(in));
  }
}

}  // namespace strata
