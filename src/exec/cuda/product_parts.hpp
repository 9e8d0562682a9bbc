#pragma once

/// @file
/// A linear layer's product in parts that cuBLASLt has fast kernels for. Those of tensor cores take sizes in multiples
/// of 16 bytes alone: with GPT-2's vocabulary of 50,257 in bf16 an H200 reached a seventh of its rate, rows of logits a
/// multiple apart or not. The last few outputs of the layer become a product of their own.

#include <cstdint>
#include <vector>

#include "exec/cuda/matmul.hpp"

namespace strata::cuda {

/// Which size of the product a linear layer's outputs are.
enum class OutputsAre : std::uint8_t {
  m,  ///< forward
  n,  ///< the gradient of the weight
  k,  ///< the gradient of the input
};

/// To be computed in this order; one part where no more is gained. Where outputs are summed over (k), the last few are
/// the first part, which is rounded by itself, and the others are added to it.
std::vector<MatmulOperands> product_parts(const MatmulOperands& whole, OutputsAre outputs);

}  // namespace strata::cuda
