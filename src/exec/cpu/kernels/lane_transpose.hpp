#pragma once

/// @file
/// A 16 x 16 matrix of 32-bit words transposed in sixteen registers.

#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

/// row[i] lane j ↔ row[j] lane i.
STRATA_LANES void transpose_words(U32x16 (&row)[16]) {
  U32x16 pair[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {  // words of neighbouring rows
    pair[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    pair[i + 1] =
        __builtin_shufflevector(row[i], row[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {  // pairs of words
    const auto low = [](U32x16 a, U32x16 b) {
      return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    };
    const auto high = [](U32x16 a, U32x16 b) {
      return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    };
    row[i] = low(pair[i], pair[i + 2]);
    row[i + 1] = high(pair[i], pair[i + 2]);
    row[i + 2] = low(pair[i + 1], pair[i + 3]);
    row[i + 3] = high(pair[i + 1], pair[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {  // groups of four words: a 4 x 4 transposition for each i
    const auto even = [](U32x16 a, U32x16 b) {
      return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    };
    const auto odd = [](U32x16 a, U32x16 b) {
      return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    };
    const U32x16 even_low = even(row[i], row[i + 4]);
    const U32x16 odd_low = odd(row[i], row[i + 4]);
    const U32x16 even_high = even(row[i + 8], row[i + 12]);
    const U32x16 odd_high = odd(row[i + 8], row[i + 12]);
    pair[i] = even(even_low, even_high);
    pair[i + 4] = even(odd_low, odd_high);
    pair[i + 8] = odd(even_low, even_high);
    pair[i + 12] = odd(odd_low, odd_high);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    row[i] = pair[i];
  }
}

}  // namespace strata::cpu
