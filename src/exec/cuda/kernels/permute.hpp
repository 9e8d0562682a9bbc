#pragma once

/// @file
/// A tensor's dims in another order: what stands before and after a collective that changes a layout.

#include <cuda_runtime_api.h>

#include "exec/kernel_dims.hpp"

namespace strata::cuda {

/// As the CPU kernel of the same name, queued on @p stream; y does not overlap what is read of x.
/// @throws Unsupported where y has 2³¹ or more of the largest pieces that runs, distances and addresses allow: 16, 8, 4
/// or 2 bytes.
void permute(const PermuteDims& dims, const void* x, void* y, cudaStream_t stream);

}  // namespace strata::cuda
