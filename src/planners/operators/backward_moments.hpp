#pragma once

/// @file
/// Bytes of activations while each operator's backward runs, as a search over operators needs them: a bound
/// in closed form, of any number of samples at once. No Program is asked here, because such a search weighs thousands
/// of combinations; whoever takes one asks its Program.

#include <cstdint>
#include <vector>

#include "ir/model/model_graph.hpp"
#include "ir/plan/plan.hpp"

namespace strata {

/// What is there while one operator's backward runs.
struct BackwardMoment {
  std::int64_t activations = 0;           ///< bytes kept by forward, or computed again, and still needed
  std::int64_t activation_gradients = 0;  ///< bytes of the operator's own, in and out
};

/// One an operator, in graph order, for a micro-batch of @p num_samples. A recomputed block keeps what it reads from
/// outside; the rest is there again during its own backward.
std::vector<BackwardMoment> backward_moments(const ModelGraph& graph, DType compute, Recompute recompute,
                                             std::int64_t num_samples);

}  // namespace strata
