/// @file
/// Changes of layout → a collective and the kernels that put its pieces into their places; and sums of what ranks that
/// go on with all of it have each a part of.

#include <fmt/core.h>

#include "ir/program/kernel_runs.hpp"
#include "lower/step/operator_kernels.hpp"
#include "lower/step/streams.hpp"

namespace strata {
/// @p from in another order: in a new buffer, or in @p into. Where nothing moves, and a buffer was not named, as it is.
Operand OperatorLowering::permuted(const Operator& op, const Operand& from, const Permutation& permutation,
                                   const Operand* into, Phase phase) {
  if (permutation.is_identity() && into == nullptr) return from;
  const Operand to = into != nullptr ? *into : packed_buffer(op, "/packed", from);
  Instruction in{.kernel = Kernel::permute,
                 .phase = phase,
                 .micro_batch = activations.micro_batch(),
                 .name = op.name,
                 .inputs = {from},
                 .outputs = {to},
                 .attributes = {{"elements", to.num_elements}}};
  set_runs(in.attributes, "first", permutation.block(), fmt::format("plan `{}`: {}", plan.strategy, op.name));
  emit(std::move(in));
  return to;
}

/// @p tensor as parts that stand one after the other: in a new buffer, or in @p into. @p tensor itself where its parts
/// stand like that and no buffer is named.
Operand OperatorLowering::packed(const Operator& op, const Operand& tensor, const Packing& packing, const Operand* into,
                                 Phase phase) {
  if (packing.begins.empty()) return permuted(op, tensor, packing.permutation, into, phase);
  if (packing.is_in_place() && into == nullptr) return tensor;
  const Operand parts = into != nullptr ? *into : packed_buffer(op, "/packed", tensor);
  for (std::size_t p = 0; p < packing.blocks.size(); ++p) {
    const Operand part = packing.part_of(parts, static_cast<int>(p));
    if (part.num_elements > 0) copy_block(op, packing.blocks[p], tensor, part, false, phase);
  }
  if (parts.num_elements == 0) clear(op, parts, phase);
  return parts;
}

/// The other way round: @p parts into their places in @p tensor.
void OperatorLowering::unpack(const Operator& op, const Operand& parts, const Packing& packing, const Operand& tensor,
                              Phase phase) {
  if (packing.begins.empty()) {
    permuted(op, parts, packing.permutation.inverse(), &tensor, phase);
    return;
  }
  for (std::size_t p = 0; p < packing.blocks.size(); ++p) {
    const Operand part = packing.part_of(parts, static_cast<int>(p));
    if (part.num_elements > 0) copy_block(op, packing.blocks[p], part, tensor, true, phase);
  }
  if (tensor.num_elements == 0) clear(op, tensor, phase);
}

/// A tensor without elements is born all the same.
void OperatorLowering::clear(const Operator& op, const Operand& tensor, Phase phase) {
  Instruction in{.kernel = Kernel::fill,
                 .phase = phase,
                 .micro_batch = activations.micro_batch(),
                 .name = op.name,
                 .outputs = {tensor},
                 .attributes = {{"elements", tensor.num_elements}, {"value", 0.0}}};
  here.emit(std::move(in));
}

/// @param scatters the block is of @p to, else of @p from.
void OperatorLowering::copy_block(const Operator& op, const StridedBlock& block, const Operand& from, const Operand& to,
                                  bool scatters, Phase phase) {
  Instruction in{.kernel = Kernel::permute,
                 .phase = phase,
                 .micro_batch = activations.micro_batch(),
                 .name = op.name,
                 .inputs = {from},
                 .outputs = {to},
                 .attributes = {{"elements", scatters ? from.num_elements : to.num_elements}}};
  if (scatters) in.attributes.set("scatters", 1);
  set_runs(in.attributes, "first", block, fmt::format("plan `{}`: {}", plan.strategy, op.name));
  here.emit(std::move(in));
}

Operand OperatorLowering::packed_buffer(const Operator& op, const char* suffix, const Operand& like) {
  return builder.whole(builder.add_buffer({.name = op.name + suffix,
                                           .num_elements = like.num_elements,
                                           .dtype = builder.buffer(like.buffer).dtype,
                                           .category = Category::communication}));
}

void OperatorLowering::redistribute(const Operator& op, const Operand& from, const Operand& to, const Movement& step,
                                    Phase phase) {
  if (step.axes == 0) {
    packed(op, from, step.from, &to, phase);
    return;
  }
  const Operand sent = packed(op, from, step.from, nullptr, phase);
  const bool lands = step.to.is_in_place();
  const Operand received = lands ? to : packed_buffer(op, "/received", to);
  Instruction in{.kernel = Kernel::none,
                 .collective = step.collective,
                 .group = groups->of(step.axes),
                 .stream = layout_stream,
                 .phase = phase,
                 .micro_batch = activations.micro_batch(),
                 .name = op.name,
                 .inputs = {sent},
                 .outputs = {received}};
  in.pieces.input = step.from.begins;
  in.pieces.output = step.to.begins;
  in.pieces.longest = step.longest;
  here.emit(std::move(in));
  if (!lands) unpack(op, received, step.to, to, phase);
}

void OperatorLowering::sum_in_place(const Operator& op, const Operand& sum, AxisSet over, Phase phase) {
  here.emit({.kernel = Kernel::none,
             .collective = Collective::all_reduce,
             .group = groups->of(over),
             .stream = layout_stream,
             .phase = phase,
             .micro_batch = activations.micro_batch(),
             .name = op.name + "/sum",
             .inputs = {sum},
             .outputs = {sum}});
}

void OperatorLowering::redistribute_forward(const Operator& op, Phase phase) {
  const Redistribution& step = model.steps[static_cast<std::size_t>(op.attributes.integer("step"))];
  const Operand from = activations.value(op.inputs.front());
  redistribute(op, from, activations.produce(op.outputs.front()), step.forward, phase);
}

void OperatorLowering::redistribute_backward(const Operator& op) {
  const Redistribution& step = model.steps[static_cast<std::size_t>(op.attributes.integer("step"))];
  const ActivationGradients::Contribution& dx = gradients_of(op).inputs.front();
  if (dx.place < 0) return;
  redistribute(op, output_gradient(op), activations.written(here, dx), step.backward, Phase::backward);
  activations.merge(here, dx, op.name);
}

}  // namespace strata
