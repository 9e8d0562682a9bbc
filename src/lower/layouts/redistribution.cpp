/// @file
/// Changes of layout → a collective and the kernels that put its pieces into their places. Backward goes the other way
/// round: what was gathered is scattered as sums, what was scattered is gathered, what was exchanged goes back.

#include <fmt/core.h>

#include "ir/program/kernel_runs.hpp"
#include "lower/step/operator_kernels.hpp"
#include "lower/step/streams.hpp"

namespace strata {
namespace {

Redistribution reversed(const Redistribution& step) {
  Redistribution back{
      .collective = step.collective, .axes = step.axes, .pack = step.unpack.inverse(), .unpack = step.pack.inverse()};
  if (step.collective == Collective::all_gather) back.collective = Collective::reduce_scatter;
  if (step.collective == Collective::reduce_scatter) back.collective = Collective::all_gather;
  return back;
}

}  // namespace

/// @p from in another order: in a new buffer, or in @p into. Where nothing moves, and a buffer was not named, as it is.
Operand OperatorLowering::permuted(const Operator& op, const Operand& from, const Permutation& permutation,
                                   const Operand* into, Phase phase) {
  if (permutation.is_identity() && into == nullptr) return from;
  const Operand to = into != nullptr ? *into
                                     : builder.whole(builder.add_buffer({.name = op.name + "/packed",
                                                                         .num_elements = from.num_elements,
                                                                         .dtype = builder.buffer(from.buffer).dtype,
                                                                         .category = Category::communication}));
  Instruction in{.kernel = Kernel::permute,
                 .phase = phase,
                 .micro_batch = activations.micro_batch(),
                 .name = op.name,
                 .inputs = {from},
                 .outputs = {to},
                 .attributes = {{"elements", to.num_elements}}};
  set_runs(in.attributes, "first", permutation.block(), fmt::format("plan `{}`: {}", plan.strategy, op.name));
  builder.emit(std::move(in));
  return to;
}

void OperatorLowering::redistribute(const Operator& op, const Operand& from, const Operand& to,
                                    const Redistribution& step, Phase phase) {
  if (step.axes == 0) {
    permuted(op, from, step.pack, &to, phase);
    return;
  }
  const Operand packed = permuted(op, from, step.pack, nullptr, phase);
  const bool lands = step.unpack.is_identity();
  Operand received = to;
  if (!lands) {
    received = builder.whole(builder.add_buffer({.name = op.name + "/received",
                                                 .num_elements = to.num_elements,
                                                 .dtype = builder.buffer(to.buffer).dtype,
                                                 .category = Category::communication}));
  }
  builder.emit({.kernel = Kernel::none,
                .collective = step.collective,
                .group = groups->of(step.axes),
                .stream = communication_stream,
                .phase = phase,
                .micro_batch = activations.micro_batch(),
                .name = op.name,
                .inputs = {packed},
                .outputs = {received}});
  if (!lands) permuted(op, received, step.unpack, &to, phase);
}

void OperatorLowering::redistribute_forward(const Operator& op, Phase phase) {
  const Redistribution& step = model.steps[static_cast<std::size_t>(op.attributes.integer("step"))];
  const Operand from = activations.value(op.inputs.front());
  redistribute(op, from, activations.produce(op.outputs.front()), step, phase);
}

void OperatorLowering::redistribute_backward(const Operator& op) {
  const int x = op.inputs.front();
  const Redistribution& step = model.steps[static_cast<std::size_t>(op.attributes.integer("step"))];
  const Activations::Taken dy = activations.take_gradient(op.outputs.front());
  if (!activations.needs_gradient(x)) return;
  const Activations::Destination dx = activations.gradient_destination(x, false);
  redistribute(op, dy.operand, dx.operand, reversed(step), Phase::backward);
  activations.merge(x, dx, op.name);
}

}  // namespace strata
