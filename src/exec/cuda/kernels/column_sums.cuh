#pragma once

/// @file
/// Sums over rows, column by column, in a fixed order: blocks of rows (row_block_begin) leave a line of partial sums
/// each, which are added afterwards.

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
  __shared__ float parts[sum_lines][sum_columns];
  const unsigned column = threadIdx.x % sum_columns;
  float sum = 0.0F;
  for (std::int64_t line = begin + threadIdx.x / sum_columns; line < end; line += sum_lines) sum += value(line);
  __syncthreads();  // the array may still be read by an earlier call
  parts[threadIdx.x / sum_columns][column] = sum;
  __syncthreads();
  float total = 0.0F;
  for (unsigned line = 0; line < sum_lines; ++line) total += parts[line][column];
  return total;
}

/// sums[columns] (+)= Σ over lines of partials[line · stride + column], rounded once.
template <typename T>
__global__ void join_row_blocks(const float* partials, std::int64_t num_lines, std::int64_t stride,
                                std::int64_t columns, T* sums, bool accumulate) {
  const std::int64_t column = std::int64_t{blockIdx.x} * sum_columns + threadIdx.x % sum_columns;
  const bool is_inside = column < columns;
  float total = sum_of_lines(0, num_lines,
                             [&](std::int64_t line) { return is_inside ? partials[line * stride + column] : 0.0F; });
  if (!is_inside || threadIdx.x >= sum_columns) return;
  if (accumulate) total += to_float(sums[column]);
  sums[column] = from_float<T>(total);
}

inline void join_rows(const float* partials, std::int64_t rows, std::int64_t stride, std::int64_t columns, DType dtype,
                      void* sums, bool accumulate, cudaStream_t stream) {
  with_storage(dtype, [&](auto type) {
    join_row_blocks<<<sum_blocks(columns), sum_threads, 0, stream>>>(partials, num_row_blocks(rows), stride, columns,
                                                                     static_cast<decltype(type)*>(sums), accumulate);
  });
  check_launch("join_row_blocks");
}

}  // namespace strata::cuda
