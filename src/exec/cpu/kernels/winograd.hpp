#pragma once

/// @file
/// 3 x 3 convolutions of stride 1 in f32 by Winograd's F(4 x 4, 3 x 3): a quarter of the products, and of each output's
/// bits no other image has a say. Activations and weights lie as in convolution.hpp; nothing of them is reordered.
///
/// An output is off by at most 3e-7 of the largest |x| times the sum of its 9 · in weights' magnitudes, a gradient of
/// an input by as much of the largest |dy| times the sum of its 9 · out weights', one of a weight by as much of the
/// largest |x| times the sum of its channel's |dy|; and all of them by 2e-6 in the norm (direct sums: 1e-6). Tested
/// against double at shapes that fill neither tiles nor vectors. Sums of integers are not exact, and an infinity or NaN
/// makes NaN of all outputs of its tiles.

#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/cpu/convolution_choice.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cpu {

// Those of convolution.hpp, where winograd_serves(dims).

std::int64_t winograd_forward_workspace_bytes(const ConvolutionDims& dims);
std::int64_t winograd_backward_input_workspace_bytes(const ConvolutionDims& dims);
std::int64_t winograd_backward_weight_workspace_bytes(const ConvolutionDims& dims);

void winograd_forward(const ConvolutionDims& dims, const float* x, const float* weight, const float* bias, float* y,
                      std::span<std::byte> workspace);
void winograd_backward_input(const ConvolutionDims& dims, const float* dy, const float* weight, float* dx,
                             std::span<std::byte> workspace);
/// dW alone, not db.
void winograd_backward_weight(const ConvolutionDims& dims, const float* dy, const float* x, float* dweight,
                              bool accumulate, std::span<std::byte> workspace);

}  // namespace strata::cpu
