/// @file
/// Operators that need whole rows where features are split: norms and the loss. Each rank makes what it can of its part
/// of a row, all gather these few numbers, and each combines them for itself, in the same order: so the result does not
/// depend on the rank, and no sum is rounded twice.

#include <algorithm>

#include "base/error.hpp"
#include "ir/program/kernel_runs.hpp"
#include "lower/step/operator_kernels.hpp"
#include "lower/step/streams.hpp"

namespace strata {
namespace {

constexpr std::int64_t numbers_of_norm = 2;           ///< mean and squared deviations; backward: two sums
constexpr std::int64_t numbers_of_uneven_norm = 3;    ///< forward, behind them how many features a rank has
constexpr std::int64_t numbers_of_cross_entropy = 3;  ///< maximum, sum of exponentials, the target's logit

/// Of all ranks, where they have unequal numbers.
void copy_features(const Operator& op, Attributes& to) {
  if (op.attributes.has("features")) to.set("features", op.attributes.integer("features"));
}

}  // namespace

std::int64_t OperatorLowering::num_parts_over(AxisSet over) const {
  return static_cast<std::int64_t>(builder.group(groups->of(over)).ranks.size());
}

/// 0 where the rows of @p tensor are whole.
AxisSet OperatorLowering::split_over(int tensor) const {
  return model.layouts.empty() ? 0 : model.layouts[static_cast<std::size_t>(tensor)].features;
}

Operand OperatorLowering::partial_rows(const Operator& op, std::int64_t num_rows, std::int64_t width) {
  return builder.whole(builder.add_buffer(
      {.name = op.name + "/partial", .num_elements = num_rows * width, .category = Category::communication}));
}

/// The parts of all ranks, one after the other.
Operand OperatorLowering::exchanged(const Operator& op, const Operand& partial, AxisSet over, Phase phase) {
  const int group = groups->of(over);
  const Operand all = builder.whole(builder.add_buffer({.name = op.name + "/all_parts",
                                                        .num_elements = partial.num_elements * num_parts_over(over),
                                                        .category = Category::communication}));
  here.emit({.kernel = Kernel::none,
             .collective = Collective::all_gather,
             .group = group,
             .stream = layout_stream,
             .phase = phase,
             .micro_batch = activations.micro_batch(),
             .name = op.name,
             .inputs = {partial},
             .outputs = {all}});
  return all;
}

void OperatorLowering::split_norm_forward(const Operator& op, AxisSet over, Phase phase) {
  const Operand x = activations.value(op.inputs.front());
  const std::int64_t is_rms = op.kind == OperatorKind::rms_norm ? 1 : 0;
  Instruction part = kernel(Kernel::norm_partial, op, phase);
  const double epsilon = op.attributes.real("epsilon");
  const std::int64_t num_rows = part.attributes.integer("rows"), width = part.attributes.integer("width");
  const bool is_uneven = op.attributes.has("features");
  part.attributes = {{"rows", num_rows}, {"width", width}, {"rms", is_rms}};
  copy_features(op, part.attributes);
  part.inputs = {x};
  part.outputs = {partial_rows(op, num_rows, is_uneven ? numbers_of_uneven_norm : numbers_of_norm)};
  const Operand partial = part.outputs.front();
  emit(std::move(part));
  const Operand all = exchanged(op, partial, over, phase);
  Instruction in = kernel(Kernel::norm_apply, op, phase);
  in.attributes = {
      {"rows", num_rows}, {"width", width}, {"parts", num_parts_over(over)}, {"epsilon", epsilon}, {"rms", is_rms}};
  copy_features(op, in.attributes);
  in.inputs = {x, all};
  for (const int p : op.parameters) in.inputs.push_back(weight_of(op, p));
  in.outputs = {output(op, 0, {}), output(op, 1, {})};
  emit(std::move(in));
}

void OperatorLowering::split_norm_backward(const Operator& op, AxisSet over) {
  const Operand dy = output_gradient(op);
  const int tensor = op.inputs.front();
  const std::int64_t is_rms = op.kind == OperatorKind::rms_norm ? 1 : 0;
  const std::vector<Operand> read = {dy, activations.value(tensor), weight_of(op, op.parameters.front()),
                                     activations.value(op.outputs[1])};
  Instruction part = kernel(Kernel::norm_backward_partial, op, Phase::backward);
  const std::int64_t num_rows = part.attributes.integer("rows"), width = part.attributes.integer("width");
  part.attributes = {{"rows", num_rows}, {"width", width}, {"rms", is_rms}};
  part.inputs = read;
  part.outputs = {partial_rows(op, num_rows, numbers_of_norm)};
  const Operand partial = part.outputs.front();
  emit_weight_gradient(op, std::move(part));
  if (!activations.needs_gradient(tensor)) return;
  const Operand all = exchanged(op, partial, over, Phase::backward);
  Instruction in = kernel(Kernel::norm_backward_apply, op, Phase::backward);
  in.attributes = {{"rows", num_rows}, {"width", width}, {"parts", num_parts_over(over)}, {"rms", is_rms}};
  copy_features(op, in.attributes);
  in.inputs = read;
  in.inputs.push_back(all);
  emit_input_gradient(op, std::move(in));
}

void OperatorLowering::split_cross_entropy(const Operator& op, AxisSet over, Phase phase) {
  const Operand targets = activations.value(op.inputs[1]);
  const Operand logits = activations.turn_into_gradient(here, op, gradients_of(op).inputs.front());
  Instruction in = kernel(Kernel::cross_entropy_apply, op, phase);
  const std::int64_t num_rows = in.attributes.integer("rows");
  Instruction part = kernel(Kernel::cross_entropy_partial, op, phase);
  part.attributes = {{"rows", num_rows},
                     {"classes", op.attributes.integer("classes")},
                     {"first_class", op.attributes.integer("first_class")}};
  copy_runs(op.attributes, part.attributes);
  copy_runs(op.attributes, in.attributes);
  part.inputs = {logits, targets};
  part.outputs = {partial_rows(op, num_rows, numbers_of_cross_entropy)};
  const Operand partial = part.outputs.front();
  emit(std::move(part));
  const Operand all = exchanged(op, partial, over, phase);
  in.attributes.set("first_class", op.attributes.integer("first_class"));
  in.attributes.set("parts", num_parts_over(over));
  in.inputs = {logits, targets, all};
  in.outputs = {output(op, 0, {}), logits};
  emit(std::move(in));
}

}  // namespace strata
