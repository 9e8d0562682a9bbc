#pragma once

/// @file
/// What kernels of a GPU compute at once: data, so that Programs for GPUs are lowered without one.

#include "ir/program/fusions.hpp"

namespace strata::cuda {

/// Results are those of the kernels one by one, but for the order of the sums behind a bias' gradient, and for what is
/// not rounded to bf16 between a product and what is added to it or done to it.
constexpr Fusions fusions = {.convolution_relu = true,
                             .max_pool_relu = true,
                             .bias_gradient_first = true,
                             .linear_gelu = true,
                             .add_norm = true,
                             .logit_rows_in_vectors = true};

}  // namespace strata::cuda
