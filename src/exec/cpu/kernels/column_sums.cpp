/// @file
/// Column sums: threads share out stripes of columns, each stripe walks all rows.

#include "exec/cpu/kernels/column_sums.hpp"

#include <algorithm>

#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t stripe_cols = 256;
constexpr std::int64_t summed_rows = 64;

template <typename T, typename S>
void column_sums_of(const T* matrix, std::int64_t rows, std::int64_t cols, S* sums, bool accumulate) {
  const std::int64_t num_stripes = (cols + stripe_cols - 1) / stripe_cols;
#pragma omp parallel for schedule(static)
  for (std::int64_t stripe = 0; stripe < num_stripes; ++stripe) {
    const std::int64_t first = stripe * stripe_cols;
    const std::int64_t width = std::min(stripe_cols, cols - first);
    float total[stripe_cols] = {};
    for (std::int64_t block = 0; block < rows; block += summed_rows) {
      float partial[stripe_cols] = {};
      for (std::int64_t row = block; row < std::min(rows, block + summed_rows); ++row) {
        const T* line = matrix + row * cols + first;
        for (std::int64_t col = 0; col < width; ++col) {
          partial[col] += static_cast<float>(line[col]);
        }
      }
      for (std::int64_t col = 0; col < width; ++col) {
        total[col] += partial[col];
      }
    }
    for (std::int64_t col = 0; col < width; ++col) {
      const float old = accumulate ? static_cast<float>(sums[first + col]) : 0.0F;
      sums[first + col] = S(old + total[col]);
    }
  }
}

}  // namespace

void column_sums(const ColumnSumsDims& dims, const void* matrix, void* sums, bool accumulate) {
  with_storage(dims.dtype, [&]<typename T>() {
    with_storage(dims.sums_dtype, [&]<typename S>() {
      column_sums_of(static_cast<const T*>(matrix), dims.rows, dims.columns, static_cast<S*>(sums), accumulate);
    });
  });
}

}  // namespace strata::cpu
