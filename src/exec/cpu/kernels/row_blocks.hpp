#pragma once

/// @file
/// Sums over rows whose bits depend on the number of rows alone: rows are cut into at most 64 blocks, a block adds its
/// rows into one line of partial sums in the workspace, and the lines are added in order.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

struct RowBlocks {
  std::int64_t rows = 0;

  std::int64_t block_rows() const { return std::max<std::int64_t>(16, (rows + 63) / 64); }
  std::int64_t num_blocks() const { return (rows + block_rows() - 1) / block_rows(); }
  std::int64_t begin(std::int64_t block) const { return block * block_rows(); }
  std::int64_t end(std::int64_t block) const { return std::min(rows, (block + 1) * block_rows()); }
  /// Bytes of the partial sums of @p num_columns columns.
  std::int64_t workspace_bytes(std::int64_t num_columns) const {
    return num_blocks() * num_columns * static_cast<std::int64_t>(sizeof(float));
  }
};

/// sums[width] (+)= Σ over blocks of partials[block · stride + column], rounded once to the type of @p sums.
template <typename T>
void add_row_blocks(const RowBlocks& blocks, const float* partials, std::int64_t stride, std::int64_t width, T* sums,
                    bool accumulate) {
  for_lanes(width, [&](std::int64_t column, auto lanes) {
    F32x16 total{};
    for (std::int64_t block = 0; block < blocks.num_blocks(); ++block) {
      total += load(partials + block * stride + column, lanes);
    }
    if (accumulate) {
      total += load(sums + column, lanes);
    }
    store(sums + column, total, lanes);
  });
}

}  // namespace strata::cpu
