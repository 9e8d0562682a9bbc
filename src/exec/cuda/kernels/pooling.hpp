#pragma once

/// @file
/// Max and global average pooling on NHWC; contracts are exec/cpu/kernels/pooling's, places in windows included.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/kernel_dims.hpp"

namespace strata::cuda {

void max_pool_forward(const MaxPoolDims& dims, const void* x, void* y, std::uint8_t* indices, cudaStream_t stream);
void max_pool_backward(const MaxPoolDims& dims, const void* dy, const std::uint8_t* indices, void* dx,
                       cudaStream_t stream);
struct MaxPoolBackwardOperands {
  const void* dy = nullptr;
  const std::uint8_t* indices = nullptr;
  void* dx = nullptr;
  void* dbias = nullptr;
};
/// The same, and dbias[channels] (+)= the sums of dx over all positions, of one pass over memory.
/// @param partials num_row_blocks(positions) · channels floats.
void max_pool_backward_with_bias(const MaxPoolDims& dims, const MaxPoolBackwardOperands& operands, DType dbias_dtype,
                                 bool accumulate, float* partials, cudaStream_t stream);
void average_pool_forward(const AveragePoolDims& dims, const void* x, void* y, cudaStream_t stream);
void average_pool_backward(const AveragePoolDims& dims, const void* dy, void* dx, cudaStream_t stream);

}  // namespace strata::cuda
