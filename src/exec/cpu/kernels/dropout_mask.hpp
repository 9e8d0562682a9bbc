#pragma once

/// @file
/// Dropout masks, many elements at a time. The mask is a function of the element's global index alone and is equal bit
/// for bit to RandomStream::uniform, so it is never stored: backward asks for it again.

#include <cstdint>

#include "base/random.hpp"

namespace strata::cpu {

/// scale[e] = 0 where random.uniform(first_index + e) < probability, 1 / (1 - probability) elsewhere; e = 0 … count
/// - 1.
/// @param probability of dropping, in [0, 1).
void dropout_scale_row(RandomStream random, std::uint64_t first_index, std::int64_t count, float probability,
                       float* scale);

/// The same mask as bits: bit e % 32 of bits[e / 32 * stride] is set where element e is kept. Bits at and beyond
/// `count` are 0.
void dropout_keep_bits(RandomStream random, std::uint64_t first_index, std::int64_t count, float probability,
                       std::uint32_t* bits, std::int64_t stride);

/// What a kept element is multiplied by.
constexpr float dropout_scale(float probability) { return 1.0F / (1.0F - probability); }

}  // namespace strata::cpu
