#pragma once

/// @file
/// The second half of sums over rows: blocks of rows (row_block_begin) have left a line of partial sums each, which are
/// added in order.

#include "exec/cuda/kernels/device.cuh"
#include "exec/device/workspace.hpp"

namespace strata::cuda {

/// sums[columns] (+)= Σ over lines of partials[line · stride + column], rounded once.
template <typename T>
__global__ void join_row_blocks(const float* partials, std::int64_t num_lines, std::int64_t stride,
                                std::int64_t columns, T* sums, bool accumulate) {
  for (std::int64_t column = flat_index(); column < columns; column += flat_stride()) {
    float total = 0.0F;
    for (std::int64_t line = 0; line < num_lines; ++line) total += partials[line * stride + column];
    if (accumulate) total += to_float(sums[column]);
    sums[column] = from_float<T>(total);
  }
}

inline void join_rows(const float* partials, std::int64_t rows, std::int64_t stride, std::int64_t columns, DType dtype,
                      void* sums, bool accumulate, cudaStream_t stream) {
  with_storage(dtype, [&](auto type) {
    join_row_blocks<<<flat_blocks(columns), flat_threads, 0, stream>>>(partials, num_row_blocks(rows), stride, columns,
                                                                       static_cast<decltype(type)*>(sums), accumulate);
  });
  check_launch("join_row_blocks");
}

}  // namespace strata::cuda
