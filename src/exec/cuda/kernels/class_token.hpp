#pragma once

/// @file
/// A class token in front of an image's rows, and the first row alone; contracts are exec/cpu/kernels/class_token's.

#include <cuda_runtime_api.h>

#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cuda {

void class_token_forward(const ClassTokenDims& dims, const void* x, const void* token, const void* positions, void* y,
                         cudaStream_t stream);
void class_token_backward(const ClassTokenDims& dims, const ClassTokenBackwardOperands& operands,
                          const ClassTokenAccumulate& accumulate, cudaStream_t stream);

void first_row_forward(const FirstRowDims& dims, const void* x, void* y, cudaStream_t stream);
void first_row_backward(const FirstRowDims& dims, const void* dy, void* dx, cudaStream_t stream);

}  // namespace strata::cuda
