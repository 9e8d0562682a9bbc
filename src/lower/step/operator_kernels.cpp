#include "lower/step/operator_kernels.hpp"

#include <fmt/core.h>

#include <functional>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "ir/model/operator_table.hpp"
#include "ir/program/kernel_runs.hpp"
#include "lower/step/empty_work.hpp"

namespace strata {
namespace {

void copy_attributes(const Operator& op, std::initializer_list<std::string_view> keys, Attributes& to) {
  for (const std::string_view key : keys) {
    for (const Attributes::Entry& entry : op.attributes.entries()) {
      if (entry.key == key) to.set(entry);
    }
  }
}

}  // namespace

Instruction OperatorLowering::kernel(Kernel kernel, const Operator& op, Phase phase) const {
  Instruction in{.kernel = kernel, .phase = phase, .micro_batch = activations.micro_batch(), .name = op.name};
  shape_attributes(op, in);
  return in;
}

void OperatorLowering::emit(Instruction&& in) { emit_what_is_left(here, std::move(in)); }

std::int64_t OperatorLowering::rows(int tensor, std::int64_t width) const {
  const std::vector<std::int64_t>& shape = this->tensor(tensor).shape;
  const std::int64_t samples = activations.num_samples(tensor);
  if (width == 0) {  // of rows of which this rank has no features
    return std::accumulate(shape.begin(), shape.end() - 1, samples, std::multiplies{});
  }
  const std::int64_t elements = samples * this->tensor(tensor).elements_per_sample();
  STRATA_INVARIANT(elements % width == 0, fmt::format("{} elements in rows of {}", elements, width));
  return elements / width;
}

/// The numbers that the kernel's signature lists.
void OperatorLowering::shape_attributes(const Operator& op, Instruction& in) const {
  Attributes& a = in.attributes;
  const Attributes& of = op.attributes;
  const Tensor& first_input = tensor(op.inputs.front());
  const std::int64_t samples = activations.num_samples(op.inputs.front());
  const std::int64_t elements = samples * first_input.elements_per_sample();
  switch (op.kind) {
    case OperatorKind::embedding:
      copy_attributes(op, {"width", "vocabulary", "first_column", "row", "first_token", "table_rows"}, a);
      a.set("rows", elements);
      a.set("sequence", first_input.elements_per_sample());
      break;
    case OperatorKind::linear:
      copy_attributes(op, {"in", "out", "first_column", "row"}, a);
      a.set("rows", rows(op.inputs.front(), of.integer_or("row", of.integer("in"))));
      break;
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
      copy_attributes(op, {"width", "epsilon"}, a);
      a.set("rows", rows(op.inputs.front(), of.integer("width")));
      break;
    case OperatorKind::rotary:
    case OperatorKind::attention:
      copy_attributes(op, {"heads", "kv_heads", "head_dim", "theta", "causal", "dropout"}, a);
      a.set("samples", samples);
      a.set("sequence", first_input.shape.front());
      if (op.kind == OperatorKind::attention) {
        a.set("first_sample", first_sample(op, of.real("dropout") > 0.0));
        copy_attributes(op, {"first_head", "total_heads"}, a);
      }
      break;
    case OperatorKind::swiglu:
      copy_attributes(op, {"width"}, a);
      a.set("rows", rows(op.inputs.front(), 2 * of.integer("width")));
      break;
    case OperatorKind::gelu:
    case OperatorKind::gelu_erf:
    case OperatorKind::relu:
    case OperatorKind::add: a.set("elements", elements); break;
    case OperatorKind::dropout: {
      copy_attributes(op, {"probability"}, a);
      a.set("elements", elements);
      if (!of.has("first")) {
        a.set("first_element", first_sample(op, true) * first_input.elements_per_sample());
        break;
      }
      a.set("first_element", first_sample_of_all * of.integer("sample_elements") + of.integer("first"));
      copy_runs(of, a);
      break;
    }
    case OperatorKind::convolution:
      copy_attributes(op, {"in", "out", "kernel", "stride", "padding", "height", "width"}, a);
      a.set("samples", samples);
      break;
    case OperatorKind::max_pool:
    case OperatorKind::average_pool:
    case OperatorKind::class_token:
      copy_attributes(op, {"channels", "kernel", "stride", "padding", "height", "width"}, a);
      a.set("samples", samples);
      break;
    case OperatorKind::first_row:
      copy_attributes(op, {"width"}, a);
      a.set("samples", samples);
      a.set("sequence", first_input.shape.front());
      break;
    case OperatorKind::batch_norm:
    case OperatorKind::batch_norm_inference:
      copy_attributes(op, {"channels", "epsilon"}, a);
      a.set("rows", rows(op.inputs.front(), of.integer("channels")));
      break;
    case OperatorKind::cross_entropy: {
      const std::int64_t classes = of.integer("classes");
      const std::int64_t num_rows = rows(op.inputs.front(), classes);
      const std::int64_t rows_per_sample = tensor(op.outputs.front()).elements_per_sample();
      a.set("classes", classes);
      a.set("rows", num_rows);
      // The gradient of the mean over the global batch: sums over micro-batches and ranks need no further division.
      a.set("scale", 1.0 / static_cast<double>(plan.global_batch * rows_per_sample));
      break;
    }
    case OperatorKind::top_k:
      a.set("classes", of.integer("classes"));
      a.set("rows", rows(op.inputs.front(), of.integer("classes")));
      break;
    case OperatorKind::redistribute: break;
  }
}

/// The global index of the rank's first sample. @param is_counted_from random numbers are: the others follow it.
std::int64_t OperatorLowering::first_sample(const Operator& op, bool is_counted_from) const {
  const StridedBlock& samples = model.samples[static_cast<std::size_t>(op.inputs.front())];
  if (!samples.levels.empty() && is_counted_from) {
    throw Unsupported(
        fmt::format("plan `{}`: {}: dropout on samples of which a rank has runs of {} apart cannot be lowered",
                    plan.strategy, op.name, samples.run));
  }
  return first_sample_of_all + samples.first;
}

/// A place for output @p index: over one of the inputs listed in @p may_reuse where nothing is lost, else a new buffer.
Operand OperatorLowering::output(const Operator& op, int index, std::initializer_list<int> may_reuse) {
  const int tensor = op.outputs[static_cast<std::size_t>(index)];
  for (const int input : may_reuse) {
    if (activations.may_overwrite(op, input)) {
      return activations.produce_in_place(tensor, op.inputs[static_cast<std::size_t>(input)]);
    }
  }
  return activations.produce(tensor);
}

/// The first slice makes the output; an embedding's others write their columns, a linear's add to what is there.
Operand OperatorLowering::slice_output(const Operator& op, const ColumnBlock& columns, Instruction& in) {
  if (is_first(columns)) return output(op, 0, {});
  if (op.kind == OperatorKind::linear) in.attributes.set("accumulate", 1);
  return activations.value(op.outputs.front());
}

void OperatorLowering::forward(const Operator& op, Phase phase) {
  if (op.kind == OperatorKind::redistribute) return redistribute_forward(op, phase);
  if (op.attributes.has("summa")) return summa_forward(op, phase);
  if (op.attributes.has("ring")) return ring_forward(op, phase);
  if (const AxisSet over = split_over(op.inputs.front()); over != 0) {
    if (op.kind == OperatorKind::layer_norm || op.kind == OperatorKind::rms_norm)
      return split_norm_forward(op, over, phase);
    if (op.kind == OperatorKind::cross_entropy) return split_cross_entropy(op, over, phase);
  }
  Instruction in = kernel(operator_table::row(op.kind).forward, op, phase);
  in.inputs.reserve(op.inputs.size() + op.parameters.size());
  for (const int t : op.inputs) in.inputs.push_back(activations.value(t));
  const bool adds = op.attributes.integer_or("adds", 1) != 0;
  for (const int p : op.parameters) {
    if (adds || p == op.parameters.front()) in.inputs.push_back(weight_of(op, p));
  }
  switch (op.kind) {
    case OperatorKind::rotary:
    case OperatorKind::relu:
    case OperatorKind::dropout: in.outputs = {output(op, 0, {0})}; break;
    case OperatorKind::add: in.outputs = {output(op, 0, {1, 0})}; break;
    case OperatorKind::cross_entropy:
      // The kernel leaves the gradient where the logits were: the largest activation exists once.
      in.outputs = {output(op, 0, {}), activations.turn_into_gradient(here, op, gradients_of(op).inputs.front())};
      in.inputs.front() = in.outputs.back();
      break;
    case OperatorKind::embedding:
    case OperatorKind::linear:
      if (const std::optional<ColumnBlock> columns = columns_of(op)) {
        in.outputs = {slice_output(op, *columns, in)};
        break;
      }
      [[fallthrough]];
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
    case OperatorKind::attention:
    case OperatorKind::gelu:
    case OperatorKind::gelu_erf:
    case OperatorKind::swiglu:
    case OperatorKind::convolution:
    case OperatorKind::max_pool:
    case OperatorKind::average_pool:
    case OperatorKind::class_token:
    case OperatorKind::first_row:
    case OperatorKind::batch_norm:
    case OperatorKind::batch_norm_inference:
    case OperatorKind::top_k:
      for (std::size_t i = 0; i < op.outputs.size(); ++i) {
        in.outputs.push_back(output(op, static_cast<int>(i), {}));
      }
      break;
    case OperatorKind::redistribute: break;
  }
  const Operand first_output = in.outputs.front();
  emit(std::move(in));
  if (const auto over = static_cast<AxisSet>(op.attributes.integer_or("sum_over", 0)); over != 0) {
    sum_in_place(op, first_output, over, phase);
  }
}

/// Kernels whose outputs are parameter gradients from output number in.outputs.size() on.
void OperatorLowering::emit_weight_gradient(const Operator& op, Instruction&& in) {
  std::int64_t accumulate = in.attributes.integer_or("accumulate", 0);
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    const GradientEmission::Destination destination =
        parameters.gradients().destination(here, item, index_of(op), static_cast<int>(i));
    accumulate |= destination.accumulate ? std::int64_t{1} << in.outputs.size() : 0;
    in.outputs.push_back(destination.operand);
  }
  in.attributes.set("accumulate", accumulate);
  emit(std::move(in));
  parameters.gradients().behind_contributions(here, item, index_of(op));
}

/// Kernels whose first output is the gradient of their first input.
void OperatorLowering::emit_input_gradient(const Operator& op, Instruction&& in) {
  const ActivationGradients::Contribution& dx = gradients_of(op).inputs.front();
  if (dx.place < 0) return;
  in.outputs = {activations.written(here, dx)};
  if (dx.can_accumulate) in.attributes.set("accumulate", dx.accumulate ? 1 : 0);
  emit(std::move(in));
  activations.merge(here, dx, op.name);
}

void OperatorLowering::backward(const Operator& op) {
  const ActivationGradients::OfOperator& gradients = gradients_of(op);
  if (gradients.output < 0) return;  // the loss wrote its gradient in forward; an output that nothing reads has none
  if (op.kind == OperatorKind::redistribute) return redistribute_backward(op);
  if (op.attributes.has("summa")) return summa_backward(op);
  if (op.attributes.has("ring")) return ring_backward(op);
  if (const AxisSet over = split_over(op.inputs.front());
      over != 0 && (op.kind == OperatorKind::layer_norm || op.kind == OperatorKind::rms_norm)) {
    return split_norm_backward(op, over);
  }
  const Operand dy = output_gradient(op);
  const int x = op.inputs.front();
  const operator_table::Row& row = operator_table::row(op.kind);
  Instruction in = kernel(row.backward, op, Phase::backward);
  switch (op.kind) {
    case OperatorKind::embedding:
      in.inputs = {activations.value(x), dy};
      emit_weight_gradient(op, std::move(in));
      break;
    case OperatorKind::linear:
    case OperatorKind::convolution: {
      Instruction weight = kernel(row.backward_weight, op, Phase::backward);
      weight.inputs = {activations.value(x), dy};
      const bool needs_dx = gradients.inputs.front().place >= 0;
      const bool sums_input = needs_dx && op.attributes.has("sum_gradient_over");
      std::optional<Instruction> under_sum;  // the weight's gradient, where it hides the input's sum
      if (sums_input && plan.overlap.layout == "weight_gradient") {
        under_sum = std::move(weight);
      } else {
        emit_weight_gradient(op, std::move(weight));
      }
      if (!needs_dx) break;
      in.inputs = {dy, weight_of(op, op.parameters.front())};
      if (sums_input) {
        const ActivationGradients::Contribution& dx = gradients.inputs.front();
        const Operand written = activations.written(here, dx);
        in.outputs = {written};
        in.attributes.set("accumulate", 0);
        emit(std::move(in));
        sum_in_place(op, written, static_cast<AxisSet>(op.attributes.integer("sum_gradient_over")), Phase::backward);
        if (under_sum) emit_weight_gradient(op, *std::move(under_sum));
        activations.merge(here, dx, op.name);
        break;
      }
      emit_input_gradient(op, std::move(in));
      break;
    }
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
    case OperatorKind::batch_norm: {
      const ActivationGradients::Contribution& dx = gradients.inputs.front();
      in.inputs = {dy, activations.value(x), weight_of(op, op.parameters.front()), activations.value(op.outputs[1])};
      in.outputs = {activations.written(here, dx)};
      in.attributes.set("accumulate", dx.accumulate ? 1 : 0);
      emit_weight_gradient(op, std::move(in));
      activations.merge(here, dx, op.name);
      break;
    }
    case OperatorKind::attention:
      in.inputs = {dy, activations.value(x), activations.value(op.outputs[0]), activations.value(op.outputs[1])};
      emit_input_gradient(op, std::move(in));
      break;
    case OperatorKind::class_token: {
      const ActivationGradients::Contribution& dx = gradients.inputs.front();
      in.inputs = {dy};
      in.outputs = {activations.written(here, dx)};
      emit_weight_gradient(op, std::move(in));
      activations.merge(here, dx, op.name);
      break;
    }
    case OperatorKind::gelu:
    case OperatorKind::gelu_erf:
    case OperatorKind::swiglu:
      in.inputs = {dy, activations.value(x)};
      emit_input_gradient(op, std::move(in));
      break;
    case OperatorKind::relu:
      in.inputs = {dy, activations.value(op.outputs[0])};
      emit_input_gradient(op, std::move(in));
      break;
    case OperatorKind::rotary:
    case OperatorKind::dropout:
      in.inputs = {dy};
      emit_input_gradient(op, std::move(in));
      break;
    case OperatorKind::max_pool:
      in.inputs = {dy, activations.value(op.outputs[1])};
      emit_input_gradient(op, std::move(in));
      break;
    case OperatorKind::average_pool:
    case OperatorKind::first_row:
      in.inputs = {dy};
      emit_input_gradient(op, std::move(in));
      break;
    case OperatorKind::add:
      for (const ActivationGradients::Contribution& dx : gradients.inputs) {
        if (dx.place >= 0) activations.merge(here, dx, op.name);
      }
      break;
    case OperatorKind::cross_entropy:
    case OperatorKind::batch_norm_inference:
    case OperatorKind::top_k:
    case OperatorKind::redistribute: break;
  }
}

}  // namespace strata
