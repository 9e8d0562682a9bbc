/// @file
/// Register block: sums that are enough to hide the latency of the multiply-add and few enough for the processor's
/// registers. AVX-512 has 32 of 16 lanes: eight rows of two vectors, for which a loop over k costs 8 broadcasts and 2
/// loads for 16 multiply-adds. AVX2 has 16 of 8 lanes: four rows of one vector, which is two registers.

#include "exec/cpu/kernels/attention_plain.hpp"

#include "base/ceil_div.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t block_rows = 8;  // of C at a time; operands are padded to them
#if defined(__AVX512F__)
constexpr std::int64_t register_rows = 8;
constexpr std::size_t register_vectors = 2;
#else
constexpr std::int64_t register_rows = 4;
constexpr std::size_t register_vectors = 1;
#endif
static_assert(block_rows % register_rows == 0);

/// `vectors` · 16 columns of `register_rows` rows of C.
template <std::size_t vectors>
STRATA_LANES void multiply_block(std::int64_t k, StridedOperand a, const float* b, std::int64_t ldb, float* c,
                                 std::int64_t ldc, bool add) {
  F32x16 sums[register_rows][vectors];
#pragma GCC unroll 8
  for (int row = 0; row < register_rows; ++row) {
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
    for (int row = 0; row < register_rows; ++row) {
      const float value = values[row * a.row_stride];
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v) {
        sums[row][v] += value * columns[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < register_rows; ++row) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      float* const at = c + row * ldc + static_cast<std::int64_t>(v) * num_lanes;
      store(at, add ? load(at) + sums[row][v] : sums[row][v]);
    }
  }
}

}  // namespace

void multiply_strided(const StridedDims& dims, StridedOperand a, ConstMatrixRows b, MatrixRows c, bool add) {
  const std::int64_t padded_rows = round_up(dims.m, block_rows);
  constexpr auto register_columns = static_cast<std::int64_t>(register_vectors) * num_lanes;
  for (std::int64_t row = 0; row < padded_rows; row += register_rows) {
    const StridedOperand rows = {a.data + row * a.row_stride, a.row_stride, a.k_stride};
    float* const rows_of_c = c.data + row * c.row_stride;
    std::int64_t column = 0;
    for (; column + register_columns <= dims.n; column += register_columns) {
      multiply_block<register_vectors>(dims.k, rows, b.data + column, b.row_stride, rows_of_c + column, c.row_stride,
                                       add);
    }
    if (column < dims.n) {
      multiply_block<1>(dims.k, rows, b.data + column, b.row_stride, rows_of_c + column, c.row_stride, add);
    }
  }
}

}  // namespace strata::cpu
