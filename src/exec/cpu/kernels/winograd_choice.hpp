#pragma once

/// @file
/// Which convolutions are made by Winograd's transforms (winograd.hpp), and which as direct sums.

#include "exec/kernel_dims.hpp"

namespace strata::cpu {

/// F(4 x 4, 3 x 3) can make a convolution of this shape and its gradients, and is the faster way on this processor.
/// Constant in a process.
bool winograd_serves(const ConvolutionDims& dims);

/// winograd_serves(), and the caller allows it.
inline bool is_by_winograd(const ConvolutionDims& dims) { return dims.winograd && winograd_serves(dims); }

}  // namespace strata::cpu
