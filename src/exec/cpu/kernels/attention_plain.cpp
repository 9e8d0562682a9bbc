/// @file
/// Register block: sixteen sums of 16 lanes, enough to hide the latency of the multiply-add, few enough for AVX-512's
/// registers. A loop over k costs 8 broadcasts and 2 loads for 16 multiply-adds.

#include "exec/cpu/kernels/attention_plain.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t block_rows = 8;

/// `vectors` · 16 columns of eight rows of C.
template <std::size_t vectors>
STRATA_LANES void multiply_block(std::int64_t k, StridedOperand a, const float* b, std::int64_t ldb, float* c,
                                 std::int64_t ldc, bool add) {
  F32x16 sums[block_rows][vectors];
#pragma GCC unroll 8
  for (int row = 0; row < block_rows; ++row) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      sums[row][v] = F32x16{};
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    F32x16 columns[vectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      columns[v] = load(b + i * ldb + static_cast<std::int64_t>(v) * num_lanes);
    }
    const float* const values = a.data + i * a.k_stride;
#pragma GCC unroll 8
    for (int row = 0; row < block_rows; ++row) {
      const float value = values[row * a.row_stride];
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v) {
        sums[row][v] += value * columns[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < block_rows; ++row) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      float* const at = c + row * ldc + static_cast<std::int64_t>(v) * num_lanes;
      store(at, add ? load(at) + sums[row][v] : sums[row][v]);
    }
  }
}

}  // namespace

void multiply_strided(std::int64_t m, std::int64_t n, std::int64_t k, StridedOperand a, const float* b,
                      std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  for (std::int64_t row = 0; row < m; row += block_rows) {
    const StridedOperand rows = {a.data + row * a.row_stride, a.row_stride, a.k_stride};
    std::int64_t column = 0;
    for (; column + 2 * num_lanes <= n; column += 2 * num_lanes) {
      multiply_block<2>(k, rows, b + column, ldb, c + row * ldc + column, ldc, add);
    }
    if (column < n) {
      multiply_block<1>(k, rows, b + column, ldb, c + row * ldc + column, ldc, add);
    }
  }
}

}  // namespace strata::cpu
