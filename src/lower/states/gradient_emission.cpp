#include "lower/states/gradient_emission.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/error.hpp"
#include "lower/states/quantized_gather.hpp"
#include "lower/step/streams.hpp"

namespace strata {

GradientEmission::GradientEmission(const Plan& plan, const ModelGraph& graph, GradientSums sums,
                                   ProgramBuilder& builder)
    : plan_(plan),
      graph_(graph),
      sums_(std::move(sums)),
      replica_stream_(replica_stream(plan.overlap, builder.num_streams())),
      builder_(builder),
      instructions_(sums_.actions.size(), -1) {
  make_buffers(sums_.num_lasting);
}

void GradientEmission::make_buffers(int end) {
  for (auto b = buffers_.size(); b < static_cast<std::size_t>(end); ++b) {
    const auto shared = sums_.shared.find(static_cast<int>(b));
    buffers_.push_back(shared == sums_.shared.end() ? builder_.add_buffer(sums_.buffers[b])
                                                    : builder_.shared_buffer(shared->second));
  }
}

Operand GradientEmission::in_program(const Operand& operand) const {
  if (operand.buffer < 0) return operand;
  return {buffers_[static_cast<std::size_t>(operand.buffer)], operand.begin, operand.num_elements};
}

Operand GradientEmission::made(const Operand& operand) {
  make_buffers(operand.buffer + 1);
  return in_program(operand);
}

GradientEmission::Destination GradientEmission::destination(const Place& here, int item, int op, int index) {
  const GradientSums::Destination& to = sums_.backward.at(item, op).destinations[static_cast<std::size_t>(index)];
  issue(here, to.before);
  return {made(to.place), to.accumulate};
}

void GradientEmission::behind_contributions(const Place& here, int item, int op) {
  issue(here, sums_.backward.at(item, op).behind_contributions);
}

void GradientEmission::behind_operator(const Place& here, int item, int op) {
  issue(here, sums_.backward.at(item, op).behind_operator);
}

void GradientEmission::before_item(const Place& here, int item) {
  const auto at = sums_.before_item.find(item);
  if (at != sums_.before_item.end()) issue(here, at->second);
}

void GradientEmission::issue(const Place& here, const ActionRange& actions) {
  const std::span<const GradientAction> all(sums_.actions);
  for (auto a = static_cast<std::size_t>(actions.begin); a < static_cast<std::size_t>(actions.end); ++a) {
    const std::size_t first = a;
    while (all[a].goes_with_next) ++a;
    instructions_[a] = issue(here, all.subspan(first, a - first + 1));
  }
}

std::string GradientEmission::name_of(const GradientAction& action) const {
  return action.parameter >= 0 ? graph_.parameters[static_cast<std::size_t>(action.parameter)].name
                               : fmt::format("gradients[{}]", action.bucket);
}

Attributes GradientEmission::quantized(const GradientAction& action) const {
  const bool packs = action.kind == Kind::quantize;
  const GradientAction::Chunks& chunks = action.chunks;
  Attributes attributes =
      quantized_attributes(packs ? action.from.num_elements : action.to.num_elements, chunks.size, chunks.number,
                           plan_.quantization.block, plan_.quantization.gradients == "int4" ? 4 : 8);
  if (packs) {
    attributes.set("nodes", chunks.nodes);
  } else {
    attributes.set("pieces", std::int64_t{chunks.pieces});
    attributes.set("accumulate", std::int64_t{chunks.accumulate ? 1 : 0});
  }
  return attributes;
}

int GradientEmission::issue(const Place& here, std::span<const GradientAction> together) {
  const GradientAction& action = together.back();
  const int computed = here.last_on(compute_stream);
  if (action.kind == Kind::hold_sums) {
    here.hold(replica_stream_, computed);
    return -1;
  }
  if (action.kind == Kind::await) {
    const int awaited = instructions_[static_cast<std::size_t>(action.awaited)];
    STRATA_INVARIANT(awaited >= 0, "what is awaited has not been issued");
    here.hold(compute_stream, awaited);
    return -1;
  }
  // What is written may stand where the compute stream's kernels up to here read: they come first.
  const std::span<const int> before(&computed, computed >= 0 ? 1 : 0);
  Instruction in{.phase = Phase::reduce, .name = name_of(action)};
  const auto kernel = [&](Kernel which, Attributes attributes) {
    in.kernel = which;
    in.attributes = std::move(attributes);
  };
  const auto collective = [&](Collective which) {
    in.kernel = Kernel::none;
    in.collective = which;
    in.group = action.group;
    in.stream = action.is_between_replicas ? replica_stream_ : communication_stream;
  };
  const auto message = [&](Collective which) {
    collective(which);
    in.root = action.peer;
    in.stream = action.stream;
  };
  if (action.kind == Kind::send) {
    message(Collective::send);
    in.inputs = {made(action.from)};
    return here.emit(std::move(in));
  }
  if (action.kind == Kind::receive) {
    message(Collective::recv);
    in.outputs = {made(action.to)};
    return here.emit(std::move(in), before);
  }
  const bool in_place = action.kind == Kind::all_reduce;
  for (const GradientAction& one : together) {
    in.inputs.push_back(made(in_place ? one.to : one.from));
    in.outputs.push_back(made(one.to));
  }
  switch (action.kind) {
    case Kind::reduce_scatter: collective(Collective::reduce_scatter); return here.emit(std::move(in), before);
    case Kind::all_reduce: collective(Collective::all_reduce); break;
    case Kind::all_to_all: collective(Collective::all_to_all); break;
    case Kind::quantize: kernel(Kernel::quantize, quantized(action)); break;
    case Kind::dequantize: kernel(Kernel::dequantize, quantized(action)); break;
    case Kind::copy: kernel(Kernel::copy, {{"elements", action.to.num_elements}}); break;
    case Kind::add: kernel(Kernel::accumulate, {{"elements", action.to.num_elements}}); break;
    case Kind::send:
    case Kind::receive:
    case Kind::await:
    case Kind::hold_sums: break;
  }
  return here.emit(std::move(in));
}

Operand GradientEmission::reduced(int parameter) const {
  return in_program(sums_.reduced[static_cast<std::size_t>(parameter)]);
}

std::vector<GradientSums::Counted> GradientEmission::counted() const {
  std::vector<GradientSums::Counted> all = sums_.counted;
  for (GradientSums::Counted& part : all) part.operand = in_program(part.operand);
  return all;
}

}  // namespace strata
