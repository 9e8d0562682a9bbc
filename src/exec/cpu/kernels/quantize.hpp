#pragma once

/// @file
/// Numbers to blocks of codes and back (base/quantization.hpp): what ZeRO++ sends instead of them. Each block is coded
/// by itself, rounded to the nearest code; each number is put together in f32, pieces in their order. So no result
/// depends on the threads.

#include <cstdint>

#include "exec/kernel_dims.hpp"

namespace strata::cpu {

/// packed[chunks · quantized_bytes(chunk)]: position i holds chunk (i mod nodes)·(chunks/nodes) + i div nodes, so that
/// with chunk j·R + l for rank l of R of node j what is for one l stands together. Short chunks are filled with zeros.
/// A block with an infinity or a NaN, or a number above 2e36, does not come back finite.
void quantize(const QuantizedDims& dims, std::int64_t nodes, const void* x, std::uint8_t* packed);

/// y[elements] (+)= Σ over pieces of packed[pieces][chunks · quantized_bytes(chunk)], chunks in their order.
void dequantize(const QuantizedDims& dims, std::int64_t pieces, const std::uint8_t* packed, void* y, bool accumulate);

}  // namespace strata::cpu
