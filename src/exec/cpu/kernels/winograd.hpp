#pragma once

/// @file
/// 3 x 3 convolutions of stride 1 by Winograd's F(4 x 4, 3 x 3): a quarter of the products, and of each output's bits
/// no other image has a say. Activations and weights lie as in convolution.hpp; nothing of them is reordered. Of bf16
/// tensors too all arithmetic is in f32, and each result is rounded once.
///
/// An output is off by at most 3e-7 of the largest |x| times the sum of its 9 · in weights' magnitudes, a gradient of
/// an input by as much of the largest |dy| times the sum of its 9 · out weights', one of a weight by as much of the
/// largest |x| times the sum of its channel's |dy|, and by 1e-6 of it where that channel has fewer than 16 tiles, whose
/// errors cancel each other less; and all of them by 2e-6 in the norm (direct sums: 1e-6); of bf16 tensors before a
/// result's rounding. Tested against double at shapes that fill neither tiles nor vectors. Sums of integers are not
/// exact, and an infinity or NaN makes NaN of all outputs of its tiles.

#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/kernel_dims.hpp"

namespace strata::cpu {

// Those of convolution.hpp, where winograd_serves() them (winograd_choice.hpp).

std::int64_t winograd_forward_workspace_bytes(const ConvolutionDims& dims);
std::int64_t winograd_backward_input_workspace_bytes(const ConvolutionDims& dims);
std::int64_t winograd_backward_weight_workspace_bytes(const ConvolutionDims& dims);

void winograd_forward(const ConvolutionDims& dims, const void* x, const void* weight, const void* bias, void* y,
                      std::span<std::byte> workspace);
void winograd_backward_input(const ConvolutionDims& dims, const void* dy, const void* weight, void* dx,
                             std::span<std::byte> workspace);
/// dW alone, not db.
void winograd_backward_weight(const ConvolutionDims& dims, const void* dy, const void* x, void* dweight,
                              bool accumulate, std::span<std::byte> workspace);

}  // namespace strata::cpu
