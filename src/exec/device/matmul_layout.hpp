#pragma once

/// @file
/// The linear layer's row-major products as the column-major ones that BLAS libraries know. A row-major [r, c] matrix
/// is a column-major c × r one with leading dimension c.

#include <cstdint>

#include "exec/kernel_dims.hpp"

namespace strata {

/// D[m × n] = op(A)[m × k] · op(B)[k × n], all column-major; ld: elements from one stored column to the next.
struct MatmulLayout {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  ///< A is stored k × m
  bool transpose_b = false;  ///< B is stored n × k
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
  bool operator==(const MatmulLayout&) const = default;
};

/// Of a slice: x and dx are some columns of longer rows.
constexpr std::int64_t row_of_input(const LinearDims& d) { return d.row == 0 ? d.in : d.row; }

/// Of logits: y and dy may be apart.
constexpr std::int64_t row_of_output(const LinearDims& d) { return d.out_row == 0 ? d.out : d.out_row; }

/// y[tokens,out] = x · Wᵀ. A is W, B is x, and a bias of `out` elements runs along D's rows, as cuBLASLt's epilogue has
/// it.
constexpr MatmulLayout linear_forward_layout(const LinearDims& d) {
  return {.m = d.out,
          .n = d.tokens,
          .k = d.in,
          .transpose_a = true,
          .lda = d.in,
          .ldb = row_of_input(d),
          .ldd = row_of_output(d)};
}

/// dx[tokens,in] = dy · W. A is W, B is dy.
constexpr MatmulLayout linear_backward_input_layout(const LinearDims& d) {
  return {.m = d.in, .n = d.tokens, .k = d.out, .lda = d.in, .ldb = row_of_output(d), .ldd = row_of_input(d)};
}

/// dW[out,in] = dyᵀ · x. A is x, B is dy.
constexpr MatmulLayout linear_backward_weight_layout(const LinearDims& d) {
  return {.m = d.in,
          .n = d.out,
          .k = d.tokens,
          .transpose_b = true,
          .lda = row_of_input(d),
          .ldb = row_of_output(d),
          .ldd = d.in};
}

/// The largest power of two, 256 at most, that divides an address: parts of buffers begin anywhere, and a library that
/// is not told chooses a kernel for aligned operands.
constexpr std::uint32_t alignment_bytes(std::uintptr_t address) {
  std::uint32_t alignment = 1;
  while (alignment < 256 && address % (2 * alignment) == 0) alignment *= 2;
  return alignment;
}

}  // namespace strata
