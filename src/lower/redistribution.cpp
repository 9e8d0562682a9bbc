/// @file
/// Changes of layout → a collective and the kernels that put its pieces into their places. Backward goes the other way
/// round: what was gathered is scattered as sums, what was scattered is gathered, what was exchanged goes back.

#include <fmt/core.h>

#include <algorithm>

#include "base/error.hpp"
#include "ir/kernel_runs.hpp"
#include "lower/operator_kernels.hpp"
#include "lower/streams.hpp"

namespace strata {
namespace {

/// The dims of a result with the distance of each in the source, the outermost first; neighbours are joined.
struct Stride {
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

std::vector<Stride> strides_of(const Permutation& permutation) {
  std::vector<std::int64_t> distance(permutation.sizes.size());
  std::int64_t elements = 1;
  for (std::size_t d = permutation.sizes.size(); d-- > 0;) {
    distance[d] = elements;
    elements *= permutation.sizes[d];
  }
  std::vector<Stride> strides;
  for (const int d : permutation.order) {
    const Stride next{permutation.sizes[static_cast<std::size_t>(d)], distance[static_cast<std::size_t>(d)]};
    if (next.size == 1) continue;
    if (!strides.empty() && strides.back().stride == next.size * next.stride) {
      strides.back() = {strides.back().size * next.size, next.stride};
    } else {
      strides.push_back(next);
    }
  }
  return strides;
}

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
  std::vector<Stride> strides = strides_of(permutation);
  std::int64_t run = 1;
  if (!strides.empty() && strides.back().stride == 1) {
    run = strides.back().size;
    strides.pop_back();
  }
  Instruction in{.kernel = Kernel::permute,
                 .phase = phase,
                 .micro_batch = activations.micro_batch(),
                 .name = op.name,
                 .inputs = {from},
                 .outputs = {to},
                 .attributes = {{"elements", to.num_elements}, {"first", permutation.first}, {"run", run}}};
  if (strides.size() > most_run_levels) {
    throw Unsupported(fmt::format("plan `{}`: {}: pieces at {} distances cannot be lowered; {} can", plan.strategy,
                                  op.name, strides.size(), most_run_levels));
  }
  for (std::size_t i = 0; i < strides.size(); ++i) {
    in.attributes.set(fmt::format("size{}", i), strides[i].size);
    in.attributes.set(fmt::format("stride{}", i), strides[i].stride);
  }
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
