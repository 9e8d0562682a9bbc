/// @file
/// Register block: sums that are enough to hide the latency of the multiply-add and few enough for the processor's
/// registers. AVX-512 has 32 of 16 lanes: eight rows of two registers, for which a loop over k costs 8 broadcasts and 2
/// loads for 16 multiply-adds. AVX2 has 16 of 8 lanes: four rows of two.

#include "exec/cpu/kernels/attention_plain.hpp"

#include "base/ceil_div.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t block_rows = 8;  // of C at a time; operands are padded to them
#if defined(__AVX512F__)
constexpr std::int64_t register_rows = 8;
#else
constexpr std::int64_t register_rows = 4;
#endif
static_assert(block_rows % register_rows == 0);

/// `registers` registers of columns of `register_rows` rows of C.
template <int registers>
STRATA_LANES void multiply_block(std::int64_t k, StridedOperand a, const float* b, std::int64_t ldb, float* c,
                                 std::int64_t ldc, bool add) {
  constexpr auto count = static_cast<std::size_t>(registers);
  Register sums[register_rows][count] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    Register columns[count];
#pragma GCC unroll 2
    for (int r = 0; r < registers; ++r) columns[r] = load_register(b + i * ldb + r * register_lanes);
    const float* const values = a.data + i * a.k_stride;
#pragma GCC unroll 8
    for (int row = 0; row < register_rows; ++row) {
      const float value = values[row * a.row_stride];
#pragma GCC unroll 2
      for (int r = 0; r < registers; ++r) sums[row][r] += value * columns[r];
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < register_rows; ++row) {
#pragma GCC unroll 2
    for (int r = 0; r < registers; ++r) {
      float* const at = c + row * ldc + r * register_lanes;
      store_register(at, add ? load_register(at) + sums[row][r] : sums[row][r]);
    }
  }
}

}  // namespace

void multiply_strided(const StridedDims& dims, StridedOperand a, ConstMatrixRows b, MatrixRows c, bool add) {
  const std::int64_t padded_rows = round_up(dims.m, block_rows);
  constexpr int most_registers = 2;
  constexpr std::int64_t register_columns = most_registers * register_lanes;
  for (std::int64_t row = 0; row < padded_rows; row += register_rows) {
    const StridedOperand rows = {a.data + row * a.row_stride, a.row_stride, a.k_stride};
    float* const rows_of_c = c.data + row * c.row_stride;
    std::int64_t column = 0;
    for (; column + register_columns <= dims.n; column += register_columns) {
      multiply_block<most_registers>(dims.k, rows, b.data + column, b.row_stride, rows_of_c + column, c.row_stride,
                                     add);
    }
    if (column < dims.n) {
      multiply_block<1>(dims.k, rows, b.data + column, b.row_stride, rows_of_c + column, c.row_stride, add);
    }
  }
}

}  // namespace strata::cpu
