#pragma once

/// @file
/// Column sums of a matrix, the gradient of a bias. The order of the additions depends on the number of rows alone: no
/// number of threads, and no split of the columns, changes a bit.

#include "exec/kernel_dims.hpp"

namespace strata::cpu {

/// sums[columns] (+)= Σ over rows of matrix[rows,columns] (row-major, contiguous). Rows are added in f32 in blocks of
/// 64, then the blocks' sums in order; each sum is rounded once.
void column_sums(const ColumnSumsDims& dims, const void* matrix, void* sums, bool accumulate);

}  // namespace strata::cpu
