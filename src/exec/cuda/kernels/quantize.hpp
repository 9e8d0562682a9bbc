#pragma once

/// @file
/// Numbers to blocks of codes and back (base/quantization.hpp), bit for bit as the CPU kernels of the same names; calls
/// are queued on @p stream.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/kernel_dims.hpp"

namespace strata::cuda {

/// @param packed 4-byte aligned.
void quantize(const QuantizedDims& dims, std::int64_t nodes, const void* x, std::uint8_t* packed, cudaStream_t stream);
/// @param packed 4-byte aligned.
void dequantize(const QuantizedDims& dims, std::int64_t pieces, const std::uint8_t* packed, void* y, bool accumulate,
                cudaStream_t stream);

}  // namespace strata::cuda
