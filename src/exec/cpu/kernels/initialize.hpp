#pragma once

/// @file
/// Initial values of a slice of a tensor. Element i of the whole tensor has one value, a function of the stream and i:
/// however the tensor is sharded, the shards hold the same bits.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/random.hpp"

namespace strata::cpu {

/// y[n] = mean + standard_deviation · stream.normal(first_element + i), rounded once in f32 and once more to @p dtype
/// if that is bf16.
void initialize_normal(DType dtype, void* y, std::int64_t n, const RandomStream& stream, std::uint64_t first_element,
                       float mean, float standard_deviation);

/// y[n] = lower + (upper - lower) · stream.uniform(first_element + i), likewise.
void initialize_uniform(DType dtype, void* y, std::int64_t n, const RandomStream& stream, std::uint64_t first_element,
                        float lower, float upper);

}  // namespace strata::cpu
