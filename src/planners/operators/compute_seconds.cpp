#include "planners/operators/compute_seconds.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>

#include "ir/model/operator_table.hpp"
#include "ir/program/program.hpp"

namespace strata {
namespace {

/// The sizes that a kernel's time depends on, by the names that its signature gives them.
void set_sizes(const ModelGraph& graph, const Operator& op, std::int64_t samples, Attributes& a) {
  const Tensor& x = graph.tensors[static_cast<std::size_t>(op.inputs.front())];
  const std::int64_t elements = samples * x.elements_per_sample();
  for (const Attributes::Entry& entry : op.attributes.entries()) a.set(entry);
  switch (op.kind) {
    case OperatorKind::embedding:
      a.set("rows", elements);
      a.set("sequence", x.elements_per_sample());
      break;
    case OperatorKind::linear: a.set("rows", elements / op.attributes.integer("in")); break;
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm: a.set("rows", elements / op.attributes.integer("width")); break;
    case OperatorKind::swiglu: a.set("rows", elements / (2 * op.attributes.integer("width"))); break;
    case OperatorKind::batch_norm:
    case OperatorKind::batch_norm_inference: a.set("rows", elements / op.attributes.integer("channels")); break;
    case OperatorKind::cross_entropy:
    case OperatorKind::top_k: a.set("rows", elements / op.attributes.integer("classes")); break;
    case OperatorKind::rotary:
    case OperatorKind::attention:
    case OperatorKind::first_row:
      a.set("samples", samples);
      a.set("sequence", x.shape.front());
      break;
    case OperatorKind::gelu:
    case OperatorKind::gelu_erf:
    case OperatorKind::relu:
    case OperatorKind::add:
    case OperatorKind::dropout: a.set("elements", elements); break;
    case OperatorKind::convolution:
    case OperatorKind::max_pool:
    case OperatorKind::average_pool:
    case OperatorKind::class_token: a.set("samples", samples); break;
    case OperatorKind::redistribute: break;
  }
}

/// Two operators with equal keys have equal kernels.
std::string key_of(const ModelGraph& graph, const Operator& op) {
  std::string key = fmt::format("{} {} {}", to_string(op.kind), to_text(op.attributes), op.parameters.size());
  for (const int t : op.inputs) {
    const Tensor& tensor = graph.tensors[static_cast<std::size_t>(t)];
    key += fmt::format(" {}:{}", to_string(tensor.role), fmt::join(tensor.shape, ","));
  }
  return key;
}

}  // namespace

ComputeSeconds::ComputeSeconds(const ModelGraph& graph, const Plan& plan, const std::vector<Gathers>& gathers,
                               const CostModel& costs)
    : graph_(graph), compute_(plan.dtypes.compute), costs_(costs) {
  num_readers_.assign(graph.tensors.size(), 0);
  for (const Operator& op : graph.operators) {
    for (const int t : op.inputs) ++num_readers_[static_cast<std::size_t>(t)];
  }
  std::map<std::string, std::size_t> seen;
  for (std::size_t o = 0; o < graph.operators.size(); ++o) {
    const Operator& op = graph.operators[o];
    const auto [place, is_new] = seen.try_emplace(key_of(graph, op), kinds_.size());
    if (is_new) kinds_.push_back({.op = &op});
    Kind& kind = kinds_[place->second];
    ++kind.count;
    kind.recomputed += gathers[o].recomputed ? 1 : 0;
  }
}

double ComputeSeconds::of_micro_batch(std::int64_t samples) const {
  const auto [place, is_new] = known_.try_emplace(samples, 0.0);
  if (is_new) {
    for (const Kind& kind : kinds_) place->second += operator_seconds(kind, samples);
  }
  return place->second;
}

double ComputeSeconds::operator_seconds(const Kind& kind, std::int64_t samples) const {
  const Operator& op = *kind.op;
  const operator_table::Row& row = operator_table::row(op.kind);
  double seconds = (kind.count + kind.recomputed) * kernel_seconds(op, row.forward, samples);
  const bool has_gradient = graph_.tensors[static_cast<std::size_t>(op.inputs.front())].role == TensorRole::activation;
  const bool is_of_input_alone = row.backward_weight != Kernel::none;
  if (is_of_input_alone) seconds += kind.count * kernel_seconds(op, row.backward_weight, samples);
  if (row.backward != Kernel::none && (has_gradient || !is_of_input_alone)) {
    seconds += kind.count * kernel_seconds(op, row.backward, samples);
  }
  return seconds;
}

/// The kernel with every operand a buffer of its own: cost models look at sizes and dtypes alone.
double ComputeSeconds::kernel_seconds(const Operator& op, Kernel kernel, std::int64_t samples) const {
  Program program;
  Instruction in{.kernel = kernel};
  const auto add = [&](std::vector<Operand>& operands, std::int64_t elements, DType dtype) {
    operands.push_back({static_cast<int>(program.buffers.size()), 0, elements});
    program.buffers.push_back({.num_elements = elements, .dtype = dtype});
  };
  const auto add_tensor = [&](std::vector<Operand>& operands, int t) {
    const Tensor& tensor = graph_.tensors[static_cast<std::size_t>(t)];
    add(operands, samples * tensor.elements_per_sample(), dtype_of(tensor.role, compute_));
  };
  const auto add_parameters = [&](std::vector<Operand>& operands, bool weight_alone) {
    for (const int p : op.parameters) {
      add(operands, graph_.parameters[static_cast<std::size_t>(p)].num_elements(), compute_);
      if (weight_alone) return;
    }
  };
  const operator_table::Row& row = operator_table::row(op.kind);
  const bool forward = kernel == row.forward;
  const bool of_weight = kernel == row.backward_weight || kernel == Kernel::embedding_backward;
  const bool of_input = kernel == row.backward && row.backward_weight != Kernel::none;
  if (forward) {
    for (const int t : op.inputs) add_tensor(in.inputs, t);
    add_parameters(in.inputs, false);
    for (const int t : op.outputs) add_tensor(in.outputs, t);
  } else if (of_weight) {
    add_tensor(in.inputs, op.inputs.front());
    add_tensor(in.inputs, op.outputs.front());
    add_parameters(in.outputs, false);
  } else if (of_input) {
    add_tensor(in.inputs, op.outputs.front());
    add_parameters(in.inputs, true);
    add_tensor(in.outputs, op.inputs.front());
  } else {
    add_tensor(in.inputs, op.outputs.front());
    for (const int t : saved_for_backward(op)) add_tensor(in.inputs, t);
    add_tensor(in.outputs, op.inputs.front());
    add_parameters(in.outputs, false);
  }
  Attributes sizes;
  set_sizes(graph_, op, samples, sizes);
  const std::string keys = fmt::format(",{},", kernel_signature(kernel).attributes);
  const auto takes = [&](std::string_view key) { return keys.find(fmt::format(",{},", key)) != std::string::npos; };
  for (const Attributes::Entry& entry : sizes.entries()) {
    if (takes(entry.key)) in.attributes.set(entry);
  }
  if (takes("accumulate")) {
    // A norm adds to the gradient that came past it on the residual path.
    const bool is_norm = kernel == Kernel::layer_norm_backward || kernel == Kernel::rms_norm_backward;
    in.attributes.set("accumulate", is_norm && num_readers_[static_cast<std::size_t>(op.inputs.front())] > 1 ? 1 : 0);
  }
  return costs_.kernel(program, in).seconds;
}

}  // namespace strata
