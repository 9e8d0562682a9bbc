#pragma once

/// @file
/// 2-D convolution. Activations are NHWC, weights [out][kernel_h][kernel_w][in] (oneDNN's ohwi, PyTorch's
/// channels_last): channels are contiguous everywhere. Weights are reordered inside the call, in the workspace;
/// activations never are.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace strata::cpu {

struct ConvolutionDims {
  std::int64_t images = 0;
  std::int64_t height = 0;  ///< of the input
  std::int64_t width = 0;
  std::int64_t in = 0;   ///< channels of the input
  std::int64_t out = 0;  ///< channels of the output
  std::int64_t kernel_h = 3;
  std::int64_t kernel_w = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 1;           ///< zeros on each side
  DType dtype = DType::f32;           ///< of x, W, b, y and their gradients but dW and db: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dW and db: f32, or bf16 where `dtype` is
  bool bias = false;
  bool relu = false;  ///< forward applies max(0, ·); the caller masks dy before backward

  std::int64_t out_height() const { return (height + 2 * padding - kernel_h) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel_w) / stride + 1; }

  bool operator==(const ConvolutionDims&) const = default;
};

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
