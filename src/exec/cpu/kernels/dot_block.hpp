#pragma once

/// @file
/// A block of a bf16 product on VDPBF16PS, which adds to each of 16 sums a product of two pairs. Operands are packed as
/// for AMX (bf16_panels.hpp): a row of A's tile is broadcast pair by pair, a row of B's is a vector of 16 columns.
///
/// Eight rows by two vectors of sums: enough to hide the instruction's latency, and a pair of k costs eight broadcasts
/// and two loads for sixteen instructions that multiply.

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "exec/cpu/kernels/bf16_panels.hpp"

// Compiled for AVX512_BF16 whatever -march says: bf16_unit() decides at run time.
#define STRATA_DOT [[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]]

namespace strata::cpu {

inline constexpr int dot_rows = 8;

/// sums[8, 32] = or += A · B over num_steps steps of k.
/// @param sums rows row_stride apart; @param a the first of eight rows of a tile of a panel of A; @param b a panel of
/// B.
STRATA_DOT inline void multiply_dot_rows(const bf16* a, const bf16* b, std::int64_t num_steps, float* sums,
                                         std::int64_t row_stride, bool add) {
  __m512 sum[dot_rows][2];
#pragma GCC unroll 8
  for (int row = 0; row < dot_rows; ++row) {
    const float* const at = sums + row * row_stride;
    sum[row][0] = add ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
    sum[row][1] = add ? _mm512_loadu_ps(at + 16) : _mm512_setzero_ps();
  }
  for (std::int64_t step = 0; step < num_steps; ++step, a += step_values, b += step_values) {
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; ++pair) {
      const auto left = std::bit_cast<__m512bh>(_mm512_load_si512(b + pair * 32));
      const auto right = std::bit_cast<__m512bh>(_mm512_load_si512(b + tile_values + pair * 32));
#pragma GCC unroll 8
      for (int row = 0; row < dot_rows; ++row) {
        std::int32_t word;
        std::memcpy(&word, a + row * 32 + pair * 2, sizeof word);
        const auto values = std::bit_cast<__m512bh>(_mm512_set1_epi32(word));
        sum[row][0] = _mm512_dpbf16_ps(sum[row][0], values, left);
        sum[row][1] = _mm512_dpbf16_ps(sum[row][1], values, right);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < dot_rows; ++row) {
    float* const at = sums + row * row_stride;
    _mm512_storeu_ps(at, sum[row][0]);
    _mm512_storeu_ps(at + 16, sum[row][1]);
  }
}

}  // namespace strata::cpu
