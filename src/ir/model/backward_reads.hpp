#pragma once

/// @file
/// What backward passes need besides activations: which tensors have a gradient, and which weights are read for it.

#include <vector>

#include "ir/model/model_graph.hpp"

namespace strata {

/// By tensor: an activation that depends on a parameter. The others' gradients are never computed.
std::vector<bool> tensors_with_gradient(const ModelGraph& graph);

/// Parameters that the gradient of @p op's input is made with. Biases and embeddings are not read.
/// @param input_has_gradient of its first input.
std::vector<int> weights_read_by_backward(const Operator& op, bool input_has_gradient);

}  // namespace strata
