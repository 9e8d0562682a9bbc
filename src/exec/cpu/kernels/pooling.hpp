#pragma once

/// @file
/// 2-D max pooling and global average pooling on NHWC activations, f32 or bf16. The maximum's place in its window is
/// kept as one byte an output, so backward needs neither x nor y.

#include <cstdint>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cpu {

using strata::MaxPoolDims;

/// One byte an output: images · out_height · out_width · channels.
std::int64_t max_pool_indices_bytes(const MaxPoolDims& dims);

/// y[images,out_height,out_width,channels] = maxima of x[images,height,width,channels]. @p indices, laid out like y,
/// gets row · kernel + column of the maximum inside its window: the first one of equals, the last NaN where there is
/// one; where dims.relu and it is not above 0, MaxPoolDims::no_place.
void max_pool_forward(const MaxPoolDims& dims, const void* x, void* y, std::uint8_t* indices);

/// dx = the gradient of x, overwritten. Where windows overlap their parts are added in f32 in window order and rounded
/// once.
void max_pool_backward(const MaxPoolDims& dims, const void* dy, const std::uint8_t* indices, void* dx);

using strata::AveragePoolDims;

/// y[images,channels] = means of x[images,positions,channels] over the positions, summed in f32.
void average_pool_forward(const AveragePoolDims& dims, const void* x, void* y);

/// dx[images,positions,channels] = dy[images,channels] / positions.
void average_pool_backward(const AveragePoolDims& dims, const void* dy, void* dx);

}  // namespace strata::cpu
