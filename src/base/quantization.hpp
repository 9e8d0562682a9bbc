#pragma once

/// @file
/// Numbers in blocks of few bits: how many bytes they take and where they lie. Whoever sizes a buffer, packs it or
/// reads it back asks here.
///
/// A block of n numbers is its largest magnitude a, in f32, and a code a number, an integer q in [-c, c], c = 127 for 8
/// bits and 7 for 4: the number is q·a/c, at most half a step a/(2c) off. A chunk is the magnitudes of its blocks, then
/// its codes, two a byte where they have 4 bits, the first in the low half, and zeros up to the next multiple of 4.
/// Source: Wang et al., ZeRO++, sec. 4.1 (block-based quantisation), with symmetric blocks.

#include <cstdint>

namespace strata {

/// c above: the largest code of @p bits.
constexpr int largest_code(int bits) { return (1 << (bits - 1)) - 1; }

/// Of @p num_elements in one chunk.
constexpr std::int64_t quantized_bytes(std::int64_t num_elements, int bits, std::int64_t block) {
  const std::int64_t magnitudes = (num_elements + block - 1) / block * 4;
  const std::int64_t codes = (num_elements * bits + 7) / 8;
  return magnitudes + (codes + 3) / 4 * 4;
}

}  // namespace strata
