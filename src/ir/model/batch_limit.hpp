#pragma once

/// @file
/// How many samples a step may have: bytes of their activations, over all ranks too, are counted in 64 bits.

#include <algorithm>
#include <cmath>

#include "ir/model/model_graph.hpp"

namespace strata {

struct BatchLimit {
  double elements_per_sample = 0.0;  ///< of all activations
  double most_samples = 0.0;         ///< a step
};

inline BatchLimit batch_limit(const ModelGraph& graph) {
  constexpr double most_elements = 0x1p56;
  double elements = 0.0;
  for (const Tensor& tensor : graph.tensors) elements += static_cast<double>(tensor.elements_per_sample());
  return {elements, std::floor(most_elements / std::max(elements, 1.0))};
}

}  // namespace strata
