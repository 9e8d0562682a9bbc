#pragma once

/// @file
/// Matrix products on oneDNN over plain row-major memory; leading dimensions and batch strides are the caller's, so
/// that a slice of a fused activation is an operand like any other. No copy of an operand is made: products that profit
/// from packing are in linear.hpp.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace strata::cpu {

/// C[m,n] (+)= alpha · op(A)[m,k] · op(B)[k,n] + bias[n].
///
/// Accumulation is in f32. With `accumulate` the sum with the old C is formed in f32 and rounded once to C's type.
struct MatmulDims {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::f32;      ///< of A and B: f32 or bf16
  DType out_dtype = DType::f32;  ///< of C: f32, or bf16 where A and B are bf16
  bool transpose_a = false;      ///< A is stored [k,m] instead of [m,k]
  bool transpose_b = false;      ///< B is stored [n,k] instead of [k,n]
  std::int64_t lda = 0;          ///< elements from one stored row of A to the next; 0: rows are contiguous
  std::int64_t ldb = 0;          ///< of B
  std::int64_t ldc = 0;          ///< of C
  float alpha = 1.0F;            ///< must be 1 where there is a bias
  bool accumulate = false;       ///< add to C instead of overwriting it
  bool bias = false;             ///< add a vector of n elements of type `dtype` to every row

  bool operator==(const MatmulDims&) const = default;
};

/// `batch` independent products; operand i of product j starts j · batch_stride elements after that of product 0.
/// A stride of 0 shares A or B between all products; C's must keep the products apart.
struct BatchedMatmulDims {
  MatmulDims one;
  std::int64_t batch = 1;
  std::int64_t batch_stride_a = 0;
  std::int64_t batch_stride_b = 0;
  std::int64_t batch_stride_c = 0;

  bool operator==(const BatchedMatmulDims&) const = default;
};

/// Bytes of workspace the product needs; 0 for most shapes. Depends on the number of OpenMP threads at the time of the
/// call. The first call for new dims builds the primitive (milliseconds); later ones find it.
std::int64_t matmul_workspace_bytes(const MatmulDims& dims);
std::int64_t matmul_workspace_bytes(const BatchedMatmulDims& dims);

/// Runs the product on the calling thread's OpenMP team (on the calling thread alone inside a parallel region).
/// @param bias null unless dims.bias.
/// @param workspace at least matmul_workspace_bytes(dims) bytes, 64-byte aligned; contents are lost.
/// A, B and C must not overlap. Any thread may call it; equal inputs and thread counts give equal bits.
void matmul(const MatmulDims& dims, const void* a, const void* b, const void* bias, void* c,
            std::span<std::byte> workspace);
void matmul(const BatchedMatmulDims& dims, const void* a, const void* b, const void* bias, void* c,
            std::span<std::byte> workspace);

}  // namespace strata::cpu
