/// @file
/// Sizes, names and what the backward pass reads. Checks stand in model_graph_verify.cpp, operations in flops.cpp.

#include "ir/model/model_graph.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "ir/model/operator_table.hpp"

namespace strata {
namespace {

constexpr std::array<std::string_view, 7> role_names = {"activation", "statistic", "indices", "tokens",
                                                        "targets",    "image",     "loss"};

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    elements *= size;
  }
  return elements;
}

}  // namespace

bool is_image(const Tensor& tensor) { return tensor.shape.size() == 3; }

std::int64_t Tensor::elements_per_sample() const { return product(shape); }
std::int64_t Parameter::num_elements() const { return product(shape); }

std::int64_t ModelGraph::num_parameters() const {
  std::int64_t elements = 0;
  for (const Parameter& parameter : parameters) {
    elements += parameter.num_elements();
  }
  return elements;
}

std::string_view to_string(OperatorKind kind) { return operator_table::row(kind).name; }
std::string_view to_string(TensorRole role) { return role_names.at(static_cast<std::size_t>(role)); }

OperatorKind parse_operator_kind(std::string_view text) {
  std::string names;
  for (const operator_table::Row& row : operator_table::rows) {
    if (row.name == text) {
      return row.kind;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  throw UserError(fmt::format("unknown operator kind `{}`; accepted: {}", text, names));
}

TensorRole parse_tensor_role(std::string_view text) {
  for (std::size_t i = 0; i < role_names.size(); ++i) {
    if (role_names[i] == text) {
      return static_cast<TensorRole>(i);
    }
  }
  throw UserError(fmt::format("unknown tensor role `{}`; accepted: {}", text, fmt::join(role_names, ", ")));
}

std::vector<int> saved_for_backward(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::embedding:
    case OperatorKind::linear:
    case OperatorKind::gelu:
    case OperatorKind::gelu_erf:
    case OperatorKind::swiglu:
    case OperatorKind::convolution: return {op.inputs[0]};
    case OperatorKind::layer_norm:
    case OperatorKind::rms_norm:
    case OperatorKind::batch_norm: return {op.inputs[0], op.outputs[1]};
    case OperatorKind::attention: return {op.inputs[0], op.outputs[0], op.outputs[1]};
    // The sign of the output is the sign of the input: relu may run in place.
    case OperatorKind::relu: return {op.outputs[0]};
    case OperatorKind::max_pool: return {op.outputs[1]};
    // The kernel leaves the gradient where the logits were, so they must stay untouched until then.
    case OperatorKind::cross_entropy: return {op.inputs[0]};
    case OperatorKind::rotary:
    case OperatorKind::add:
    case OperatorKind::dropout:  // the mask is drawn again from its position
    case OperatorKind::average_pool:
    case OperatorKind::class_token:
    case OperatorKind::first_row:
    case OperatorKind::batch_norm_inference:
    case OperatorKind::top_k:  // nothing of evaluation has a backward
    case OperatorKind::redistribute: return {};
  }
  throw InternalError("no such operator kind");
}

DType dtype_of(TensorRole role, DType compute) {
  switch (role) {
    case TensorRole::activation:
    case TensorRole::image: return compute;
    case TensorRole::statistic:
    case TensorRole::loss: return DType::f32;
    case TensorRole::indices: return DType::u8;
    case TensorRole::tokens:
    case TensorRole::targets: return DType::i32;
  }
  throw InternalError("no such tensor role");
}

}  // namespace strata
