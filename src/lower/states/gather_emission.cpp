#include "lower/states/gather_emission.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/collective.hpp"
#include "base/error.hpp"
#include "lower/step/streams.hpp"

namespace strata {

GatherEmission::GatherEmission(const Plan& plan, const ModelGraph& graph, const StepOrder& order, int step,
                               ParameterGathers gathers, const HeldParameters& held, ProgramBuilder& builder)
    : plan_(plan),
      graph_(graph),
      order_(order),
      step_(step),
      gathers_(std::move(gathers)),
      held_(held),
      builder_(builder),
      quantized_(plan.quantization, builder),
      copies_(static_cast<std::size_t>(gathers_.num_copies), -1),
      packed_(copies_.size(), -1),
      second_shards_(graph.parameters.size()) {}

void GatherEmission::at_beginning(const Place& here) {
  std::vector<int> parameters;
  for (int a = gathers_.at_beginning.begin; a < gathers_.at_beginning.end; ++a) {
    const GatherAction& action = gathers_.actions[static_cast<std::size_t>(a)];
    STRATA_INVARIANT(action.kind == GatherAction::Kind::spread_last_update, "a gather before the first item");
    parameters.push_back(action.parameter);
  }
  for (const std::vector<int>& message : messages_of(parameters)) spread(here, message, -1);
}

void GatherEmission::before_operator(const Place& here, int item, int op) {
  issue(here, gathers_.of_operator.at(item, op).before);
}

Operand GatherEmission::weight(int item, int op, int parameter) const {
  if (held_.groups.of(parameter).parameter < 0) {
    const OrderItem& here = order_.items[static_cast<std::size_t>(item)];
    return held_.buffers.of(parameter).held() ? shard_of(parameter, here.version) : visiting(here, parameter);
  }
  const std::vector<int>& parameters = graph_.operators[static_cast<std::size_t>(op)].parameters;
  const auto index = static_cast<std::size_t>(std::ranges::find(parameters, parameter) - parameters.begin());
  const int copy = gathers_.of_operator.at(item, op).copies.at(index);
  STRATA_INVARIANT(copy >= 0, parameter_of(parameter).name + " has not been gathered");
  if (gathers_.is_second_shard[static_cast<std::size_t>(copy)]) {
    return second_shards_[static_cast<std::size_t>(parameter)];
  }
  return builder_.whole(copies_[static_cast<std::size_t>(copy)]);
}

Operand GatherEmission::visiting(const OrderItem& item, int parameter) const {
  STRATA_INVARIANT(held_.visiting, parameter_of(parameter).name + " is not on this rank");
  const int stage = order_.shape.segments[static_cast<std::size_t>(item.segment)].stage;
  return held_.visiting->weight(step_, held_.visiting->visit_of(stage, item.pass != Pass::forward), parameter);
}

void GatherEmission::issue(const Place& here, const ActionRange& actions) {
  for (int a = actions.begin; a < actions.end; ++a) issue(here, gathers_.actions[static_cast<std::size_t>(a)]);
}

void GatherEmission::issue(const Place& here, const GatherAction& action) {
  using Kind = GatherAction::Kind;
  const ShardGroups::Set& groups = held_.groups.of(action.parameter);
  const Parameter& parameter = parameter_of(action.parameter);
  const auto copy = static_cast<std::size_t>(action.copy);
  switch (action.kind) {
    case Kind::spread_last_update: spread(here, {&action.parameter, 1}, -1); break;
    case Kind::gather: gather(here, action, shard_of(action.parameter), groups.parameter); break;
    case Kind::gather_secondary:
      gather(here, action, second_shards_[static_cast<std::size_t>(action.parameter)], groups.secondary);
      break;
    case Kind::send_quantized:
      packed_[copy] =
          quantized_.start(here, parameter, shard_of(action.parameter), groups, action.phase, action.micro_batch);
      break;
    case Kind::unpack_quantized:
      quantized_.finish(here, parameter, packed_[copy], made_copy(action), groups, action.phase, action.micro_batch);
      break;
    case Kind::keep_secondary: keep_secondary(here, action); break;
  }
}

Operand GatherEmission::made_copy(const GatherAction& action) {
  const Parameter& parameter = parameter_of(action.parameter);
  return builder_.whole(copies_[static_cast<std::size_t>(action.copy)] =
                            builder_.add_buffer({.name = parameter.name + "/gathered",
                                                 .num_elements = parameter.num_elements(),
                                                 .dtype = plan_.dtypes.compute,
                                                 .category = Category::communication}));
}

void GatherEmission::gather(const Place& here, const GatherAction& action, const Operand& from, int group) {
  // A gather starts once what has been issued to the compute stream is done, so that it takes the memory of what that
  // has let go.
  const int before = here.last_on(compute_stream);
  Instruction in{.kernel = Kernel::none,
                 .collective = Collective::all_gather,
                 .group = group,
                 .stream = communication_stream,
                 .phase = action.phase,
                 .micro_batch = action.micro_batch,
                 .name = parameter_of(action.parameter).name};
  in.inputs = {from};
  in.outputs = {made_copy(action)};
  const int gathered = here.emit(std::move(in), {&before, before >= 0 ? 1U : 0U});
  // Of a product's backward the weight's gradient comes first and does not read the weight: it would hide the gather.
  const Overlap& overlap = plan_.overlap;
  if ((action.phase == Phase::forward ? overlap.gather : overlap.gather_backward) == "none") {
    here.hold(compute_stream, gathered);
  }
}

void GatherEmission::keep_secondary(const Place& here, const GatherAction& action) {
  const Parameter& parameter = parameter_of(action.parameter);
  const ShardGroups::Set& groups = held_.groups.of(action.parameter);
  const Chunk part = chunk_of(parameter.num_elements(), groups.num_secondary, groups.secondary_index);
  Operand& kept = second_shards_[static_cast<std::size_t>(action.parameter)];
  kept = {shard_of(action.parameter).buffer, 0, 0};
  if (part.size() == 0) return;
  kept = builder_.whole(builder_.add_buffer({.name = parameter.name + "/secondary",
                                             .num_elements = part.size(),
                                             .dtype = plan_.dtypes.compute,
                                             .category = Category::parameter}));
  Instruction in{.kernel = Kernel::copy, .phase = Phase::forward, .name = parameter.name};
  in.inputs = {{copies_[static_cast<std::size_t>(action.copy)], part.begin, part.size()}};
  in.outputs = {kept};
  in.attributes = {{"elements", part.size()}};
  here.emit(std::move(in));
}

std::vector<std::vector<int>> GatherEmission::messages_of(std::span<const int> parameters) const {
  std::vector<std::vector<int>> messages;
  std::int64_t bytes = 0;  // of the last one
  for (const int p : parameters) {
    const int group = held_.groups.of(p).spread;
    const bool goes_along = !messages.empty() && bytes < plan_.overlap.spread_bytes && group >= 0 &&
                            group == held_.groups.of(messages.back().front()).spread;
    if (!goes_along) {
      messages.emplace_back();
      bytes = 0;
    }
    messages.back().push_back(p);
    bytes += held_.shards[static_cast<std::size_t>(p)].held.size * size_of(plan_.dtypes.compute);
  }
  return messages;
}

void GatherEmission::spread(const Place& here, std::span<const int> message, int step) const {
  const int group = held_.groups.of(message.front()).spread;
  if (group < 0) return;
  const bool whole_tensors = plan_.optimizer.sharding == "inter_tensor";
  Instruction in{.kernel = Kernel::none,
                 .collective = whole_tensors ? Collective::broadcast : Collective::all_gather,
                 .group = group,
                 .stream = replica_stream(plan_.overlap, builder_.num_streams()),
                 .phase = Phase::update,
                 .step = step};
  for (const int p : message) {
    const ParameterShard& shard = held_.shards[static_cast<std::size_t>(p)];
    if (shard.held.size == 0) continue;
    const Operand all = builder_.whole(held_.buffers.weight(p, step_ + step + 1));
    in.inputs.push_back(whole_tensors ? all : Operand{all.buffer, shard.updated.begin, shard.updated.size});
    in.outputs.push_back(all);
    if (whole_tensors) in.roots.push_back(shard.owner);
    if (in.name.empty()) in.name = parameter_of(p).name;
  }
  if (in.inputs.empty()) return;
  if (in.inputs.size() == 1) {
    in.root = whole_tensors ? in.roots.front() : 0;
    in.roots.clear();
  } else {
    in.name += fmt::format("+{}", in.inputs.size() - 1);
  }
  here.emit(std::move(in));
}

}  // namespace strata
