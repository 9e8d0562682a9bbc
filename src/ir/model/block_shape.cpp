/// @file
/// Blocks are compared operator by operator; wiring by position within the block, never by id or name of a tensor.

#include "ir/model/block_shape.hpp"

#include <cstddef>
#include <string_view>

#include "base/as_index.hpp"

namespace strata {
namespace {

std::string_view name_within(std::string_view name, const Block& block) {
  return name.substr(0, block.name.size()) == block.name ? name.substr(block.name.size()) : name;
}

const Operator& operator_of(const ModelGraph& graph, const Block& block, int number) {
  return graph.operators[as_index(block.first_operator + number)];
}

/// Which operator and output of the block writes @p tensor; operator -1 if it comes from outside.
struct Source {
  int number = -1;
  std::size_t output = 0;
  bool operator==(const Source&) const = default;
};
Source source_within(const ModelGraph& graph, const Block& block, int tensor) {
  for (int number = 0; number < block.num_operators; ++number) {
    const Operator& op = operator_of(graph, block, number);
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (op.outputs[i] == tensor) return {number, i};
    }
  }
  return {};
}

/// The first use of @p parameter in the block, so that sharing inside a block is compared too.
Source first_use(const ModelGraph& graph, const Block& block, int parameter) {
  for (int number = 0; number < block.num_operators; ++number) {
    const Operator& op = operator_of(graph, block, number);
    for (std::size_t i = 0; i < op.parameters.size(); ++i) {
      if (op.parameters[i] == parameter) return {number, i};
    }
  }
  return {};
}

bool same_tensor(const ModelGraph& graph, int a, int b) {
  const Tensor& first = graph.tensors[as_index(a)];
  const Tensor& second = graph.tensors[as_index(b)];
  return first.shape == second.shape && first.role == second.role;
}

bool same_operator(const ModelGraph& graph, const Block& a, const Block& b, int number) {
  const Operator& x = operator_of(graph, a, number);
  const Operator& y = operator_of(graph, b, number);
  if (x.kind != y.kind || !(x.attributes == y.attributes) || name_within(x.name, a) != name_within(y.name, b) ||
      x.inputs.size() != y.inputs.size() || x.outputs.size() != y.outputs.size() ||
      x.parameters.size() != y.parameters.size()) {
    return false;
  }
  for (std::size_t i = 0; i < x.inputs.size(); ++i) {
    if (!same_tensor(graph, x.inputs[i], y.inputs[i]) ||
        !(source_within(graph, a, x.inputs[i]) == source_within(graph, b, y.inputs[i]))) {
      return false;
    }
  }
  for (std::size_t i = 0; i < x.outputs.size(); ++i) {
    if (!same_tensor(graph, x.outputs[i], y.outputs[i])) return false;
  }
  for (std::size_t i = 0; i < x.parameters.size(); ++i) {
    if (graph.parameters[as_index(x.parameters[i])].shape != graph.parameters[as_index(y.parameters[i])].shape ||
        !(first_use(graph, a, x.parameters[i]) == first_use(graph, b, y.parameters[i]))) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool same_shape(const ModelGraph& graph, const Block& a, const Block& b) {
  if (a.num_operators != b.num_operators) {
    return false;
  }
  for (int number = 0; number < a.num_operators; ++number) {
    if (!same_operator(graph, a, b, number)) return false;
  }
  return true;
}

void assign_shape_classes(ModelGraph& graph) {
  std::vector<const Block*> first_of_class;
  for (Block& block : graph.blocks) {
    std::size_t shape_class = 0;
    while (shape_class < first_of_class.size() && !same_shape(graph, *first_of_class[shape_class], block)) {
      ++shape_class;
    }
    if (shape_class == first_of_class.size()) {
      first_of_class.push_back(&block);
    }
    block.shape_class = static_cast<int>(shape_class);
  }
}

}  // namespace strata
