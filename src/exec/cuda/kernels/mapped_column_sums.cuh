#pragma once

/// @file
/// A matrix that is written and summed column by column in one pass over memory: the gradient behind a bias, and that
/// of the bias. Sums are in the fixed order of column_sums.cuh: blocks of rows leave a line of partial sums each.

#include "exec/cuda/kernels/column_sums.cuh"

namespace strata::cuda {

/// A thread has eight neighbouring columns of every so many rows. Threads of a block stand beside each other over its
/// columns, and in lines below each other where there are fewer columns than that.
constexpr unsigned mapped_threads = 256;

/// Whether map_and_sum_columns() may be used. @param pointers of all that it reads and writes in packs.
template <typename... Pointers>
bool comes_in_packs(std::int64_t columns, Pointers... pointers) {
  return columns % pack == 0 && are_aligned(pointers...);
}

/// y[rows, columns] = value(row, number of a pack of columns, the pack), rounded, and the sums over a block of rows of
/// what was stored. @p value reads nothing that is written but its own elements of y.
template <typename T, typename Value>
__global__ void map_and_sum_columns(std::int64_t rows, std::int64_t columns, unsigned packs_beside, Value value, T* y,
                                    float* partials) {
  constexpr int rows_at_once = 4;  // are loaded before the first is stored, which may be where one was loaded
  __shared__ float sums[mapped_threads * pack];
  const std::int64_t lines = mapped_threads / packs_beside;
  const std::int64_t line = threadIdx.x / packs_beside;
  const std::int64_t at = std::int64_t{blockIdx.x} * packs_beside + threadIdx.x % packs_beside;
  const std::int64_t end = row_block_begin(rows, std::int64_t{blockIdx.y} + 1);
  float total[pack] = {};
  if (line < lines && at * pack < columns) {
    for (std::int64_t row = row_block_begin(rows, blockIdx.y) + line; row < end; row += rows_at_once * lines) {
      float v[rows_at_once][pack];
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) {
        if (row + r * lines < end) value(row + r * lines, at, v[r]);
      }
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) {
        if (row + r * lines >= end) break;
        store_pack(y + (row + r * lines) * columns + at * pack, v[r]);
#pragma unroll
        for (int k = 0; k < pack; ++k) total[k] += to_float(from_float<T>(v[r][k]));
      }
    }
  }
#pragma unroll
  for (int k = 0; k < pack; ++k) sums[threadIdx.x * pack + static_cast<unsigned>(k)] = total[k];
  __syncthreads();
  const unsigned columns_beside = packs_beside * pack;
  for (unsigned c = threadIdx.x; c < columns_beside; c += mapped_threads) {
    const std::int64_t column = std::int64_t{blockIdx.x} * columns_beside + c;
    if (column >= columns) break;
    float sum = 0.0F;
    for (std::int64_t l = 0; l < lines; ++l) sum += sums[l * columns_beside + c];
    partials[blockIdx.y * columns + column] = sum;
  }
}

/// @param partials num_row_blocks(rows) · columns floats. @param sums [columns], written or, with @p accumulate, added
/// to.
template <typename T, typename Value>
void map_with_column_sums(const ColumnSumsDims& d, const Value& value, T* y, void* sums, bool accumulate,
                          float* partials, cudaStream_t stream) {
  const auto packs_beside = static_cast<unsigned>(std::min<std::int64_t>(d.columns / pack, mapped_threads));
  const std::int64_t columns_beside = std::int64_t{packs_beside} * pack;
  const dim3 grid(static_cast<unsigned>((d.columns + columns_beside - 1) / columns_beside),
                  static_cast<unsigned>(num_row_blocks(d.rows)));
  map_and_sum_columns<<<grid, mapped_threads, 0, stream>>>(d.rows, d.columns, packs_beside, value, y, partials);
  check_launch("map_and_sum_columns");
  join_rows(partials, d.rows, d.columns, d.sums_dtype, {{sums, accumulate}}, stream);
}

}  // namespace strata::cuda
