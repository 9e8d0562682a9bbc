#pragma once

/// @file
/// Sums over rows, column by column, in a fixed order: blocks of rows (row_block_begin) leave a line of partial sums
/// each, which are added afterwards.

#include <initializer_list>

#include "exec/cuda/kernels/device.cuh"
#include "exec/device/workspace.hpp"

namespace strata::cuda {

/// A block of threads has so many neighbouring columns, and as many lines of threads each; threadIdx.x counts columns
/// first.
constexpr unsigned sum_columns = 32;
constexpr unsigned sum_lines = 8;
constexpr unsigned sum_threads = sum_columns * sum_lines;
inline unsigned sum_blocks(std::int64_t columns) {
  return static_cast<unsigned>((columns + sum_columns - 1) / sum_columns);
}

/// Σ of value(line) over lines [begin, end) of the thread's own column: every eighth line by one thread, then their
/// sums. All threads of the block must call it; all get the result.
template <typename Value>
__device__ float sum_of_lines(std::int64_t begin, std::int64_t end, const Value& value) {
  constexpr int at_once = 8;  // are loaded before the first is added, so that memory is waited for once
  __shared__ float parts[sum_lines][sum_columns];
  const unsigned column = threadIdx.x % sum_columns;
  float sum = 0.0F;
  for (std::int64_t line = begin + threadIdx.x / sum_columns; line < end; line += at_once * sum_lines) {
    float v[at_once];
#pragma unroll
    for (int l = 0; l < at_once; ++l) {
      const std::int64_t at = line + std::int64_t{l} * sum_lines;
      v[l] = at < end ? value(at) : 0.0F;
    }
#pragma unroll
    for (const float one : v) sum += one;
  }
  __syncthreads();  // the array may still be read by an earlier call
  parts[threadIdx.x / sum_columns][column] = sum;
  __syncthreads();
  float total = 0.0F;
  for (unsigned line = 0; line < sum_lines; ++line) total += parts[line][column];
  return total;
}

/// Where sums of columns go.
template <typename T>
struct ColumnSums {
  T* sums = nullptr;
  bool accumulate = false;
};

/// One of two sums of each column, by blockIdx.y: sums[columns] (+)= Σ over lines of
/// partials[(line · gridDim.y + blockIdx.y) · columns + column], rounded once.
template <typename T>
__global__ void join_row_blocks(const float* partials, std::int64_t num_lines, std::int64_t columns,
                                ColumnSums<T> first, ColumnSums<T> last) {
  const std::int64_t column = std::int64_t{blockIdx.x} * sum_columns + threadIdx.x % sum_columns;
  const bool is_inside = column < columns;
  const std::int64_t stride = std::int64_t{gridDim.y} * columns;
  const float* const of_column = partials + std::int64_t{blockIdx.y} * columns + column;
  const ColumnSums<T> to = blockIdx.y == 0 ? first : last;
  float total =
      sum_of_lines(0, num_lines, [&](std::int64_t line) { return is_inside ? of_column[line * stride] : 0.0F; });
  if (!is_inside || threadIdx.x >= sum_columns) return;
  if (to.accumulate) total += to_float(to.sums[column]);
  to.sums[column] = from_float<T>(total);
}

/// @param partials [num_row_blocks(rows), one or two, columns]. @param sums one or two, of @p dtype.
inline void join_rows(const float* partials, std::int64_t rows, std::int64_t columns, DType dtype,
                      std::initializer_list<ColumnSums<void>> sums, cudaStream_t stream) {
  STRATA_INVARIANT(sums.size() == 1 || sums.size() == 2, "one or two sums of each column");
  const dim3 grid(sum_blocks(columns), static_cast<unsigned>(sums.size()));
  with_storage(dtype, [&](auto type) {
    using T = decltype(type);
    const auto of = [](const ColumnSums<void>& s) { return ColumnSums<T>{static_cast<T*>(s.sums), s.accumulate}; };
    const ColumnSums<T> first = of(*sums.begin());
    const ColumnSums<T> last = of(*(sums.end() - 1));
    join_row_blocks<<<grid, sum_threads, 0, stream>>>(partials, num_row_blocks(rows), columns, first, last);
  });
  check_launch("join_row_blocks");
}

}  // namespace strata::cuda
