#pragma once

/// @file
/// 2-D convolution. Activations are NHWC, weights [out][kernel_h][kernel_w][in] (oneDNN's ohwi, PyTorch's
/// channels_last): channels are contiguous everywhere. Weights are reordered inside the call, in the workspace;
/// activations never are.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cpu {

using strata::ConvolutionDims;

std::int64_t convolution_forward_workspace_bytes(const ConvolutionDims& dims);
std::int64_t convolution_backward_input_workspace_bytes(const ConvolutionDims& dims);
std::int64_t convolution_backward_weight_workspace_bytes(const ConvolutionDims& dims, bool accumulate);

/// y[images,out_height,out_width,out] = x[images,height,width,in] * W + b, then ReLU where dims.relu. b [out], null
/// unless dims.bias.
/// @param workspace here and below: what the sibling function says, 64-byte aligned; contents are lost.
void convolution_forward(const ConvolutionDims& dims, const void* x, const void* weight, const void* bias, void* y,
                         std::span<std::byte> workspace);

/// dx = the gradient of x, overwritten.
void convolution_backward_input(const ConvolutionDims& dims, const void* dy, const void* weight, void* dx,
                                std::span<std::byte> workspace);

/// dW (+)= the gradient of W; db[out] (+)= sums of dy over images and positions where dims.bias (null otherwise).
void convolution_backward_weight(const ConvolutionDims& dims, const void* dy, const void* x, void* dweight, void* dbias,
                                 bool accumulate, std::span<std::byte> workspace);

}  // namespace strata::cpu
