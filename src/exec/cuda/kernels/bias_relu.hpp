#pragma once

/// @file
/// What stands around a convolution: its bias and the ReLU behind it, and their gradients, in one pass over memory
/// each. Calls are queued on @p stream.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/kernel_dims.hpp"

namespace strata::cuda {

/// matrix[rows, columns] = max(0, matrix + bias[columns]), with the sum rounded to the dtype first.
/// @throws Unsupported where there are 2³¹ elements or more.
void add_bias_and_relu(DType dtype, void* matrix, const void* bias, std::int64_t rows, std::int64_t columns,
                       cudaStream_t stream);

/// dx[rows, columns] = dy where y is above 0, else 0; dbias[columns] (+)= column sums of dx. dx may be dy.
/// @param partials num_row_blocks(rows) · columns floats.
void relu_backward_with_bias(const ColumnSumsDims& dims, const void* dy, const void* y, void* dx, void* dbias,
                             bool accumulate, float* partials, cudaStream_t stream);

}  // namespace strata::cuda
