#pragma once

/// @file
/// Eight Philox blocks side by side: 32 consecutive words of a RandomStream, equal to RandomStream::word. A 32-bit word
/// stands in the low half of a 64-bit lane; the multiplication reads only that half, so the upper one may hold anything
/// and a round needs no masking.

#include <cstdint>
#include <cstring>

#include "base/random.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

/// Words made by one call of philox_words.
inline constexpr std::int64_t philox_group_words = 32;

using U64x8 = std::uint64_t __attribute__((vector_size(64)));

/// Products of the low halves of the lanes with @p factor.
STRATA_LANES U64x8 multiply_low_halves(U64x8 a, std::uint32_t factor) {
#if defined(__AVX512F__)
  // The compiler would take the threefold slower 64-bit multiplication. The unmasked form trips GCC 12's warning about
  // uninitialized values.
  return std::bit_cast<U64x8>(
      _mm512_maskz_mul_epu32(0xff, std::bit_cast<__m512i>(a), _mm512_set1_epi64(static_cast<long long>(factor))));
#else
  return (a & 0xffffffffU) * factor;
#endif
}

/// words[0 … 31] = words 4·first_block … of the stream.
STRATA_LANES void philox_words(const RandomStream& random, std::uint64_t first_block, std::uint32_t* words) {
  const U64x8 block = first_block + U64x8{0, 1, 2, 3, 4, 5, 6, 7};
  U64x8 c0 = block;
  U64x8 c1 = block >> 32U;
  U64x8 c2 = U64x8{} + random.stream;
  U64x8 c3 = U64x8{} + (random.stream >> 32U);
  auto key0 = static_cast<std::uint32_t>(random.seed);
  auto key1 = static_cast<std::uint32_t>(random.seed >> 32U);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const U64x8 product0 = multiply_low_halves(c0, 0xD2511F53U);
    const U64x8 product1 = multiply_low_halves(c2, 0xCD9E8D57U);
    c0 = (product1 >> 32U) ^ c1 ^ std::uint64_t{key0};
    c1 = product1;
    c2 = (product0 >> 32U) ^ c3 ^ std::uint64_t{key1};
    c3 = product0;
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  const U64x8 front = (c0 & 0xffffffffU) | (c1 << 32U);
  const U64x8 back = (c2 & 0xffffffffU) | (c3 << 32U);
  const U64x8 first_half = __builtin_shufflevector(front, back, 0, 8, 1, 9, 2, 10, 3, 11);
  const U64x8 second_half = __builtin_shufflevector(front, back, 4, 12, 5, 13, 6, 14, 7, 15);
  std::memcpy(words, &first_half, sizeof first_half);
  std::memcpy(words + 16, &second_half, sizeof second_half);
}

}  // namespace strata::cpu
