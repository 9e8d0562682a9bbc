#pragma once

/// @file
/// Initial values of a slice of a tensor. Element i of the whole tensor has one value, a function of the stream and i:
/// however the tensor is sharded, the shards hold the same bits.

#include "exec/kernel_operands.hpp"

namespace strata::cpu {

/// y[n] = mean + standard_deviation · random.normal(first_element + i), rounded once in f32 and once more to the dtype
/// if that is bf16.
void initialize_normal(const InitializedSlice& slice, float mean, float standard_deviation);

/// y[n] = lower + (upper - lower) · random.uniform(first_element + i), likewise.
void initialize_uniform(const InitializedSlice& slice, float lower, float upper);

}  // namespace strata::cpu
