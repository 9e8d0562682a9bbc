#pragma once

/// @file
/// Column sums of a matrix, the gradient of a bias. The order of the additions depends on the number of rows alone: no
/// number of threads, and no split of the columns, changes a bit.

#include <cstdint>

#include "base/dtype.hpp"

namespace strata::cpu {

/// sums[cols] (+)= Σ over rows of matrix[rows,cols] (row-major, contiguous; f32 or bf16). Rows are added in f32 in
/// blocks of 64, then the blocks' sums in order. @p sums is f32 or bf16, rounded once.
void column_sums(const void* matrix, DType dtype, std::int64_t rows, std::int64_t cols, void* sums, DType sums_dtype,
                 bool accumulate);

}  // namespace strata::cpu
