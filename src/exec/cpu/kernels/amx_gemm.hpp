#pragma once

/// @file
/// bf16 matrix product on AMX tiles, for the shapes on which oneDNN 2.6 loses most: transposed operands with a long
/// inner dimension, and rows that start unaligned. Each operand is packed exactly once into tiles, so its layout in
/// memory costs O(elements) and no more.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace strata::cpu {

/// True where the processor has AMX-bf16 and AVX512-bf16 and the kernel grants this process the tile registers, unless
/// oneDNN's instruction sets are limited to those without bf16: then ours are too.
bool amx_available();

/// C[m,n] (+)= A[m,k] · B[k,n] + bias[n]; A, B and bias bf16, sums in f32, C f32 or bf16, rounded once.
struct AmxGemmDims {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  ///< A is stored [k,m] instead of [m,k]
  bool transpose_b = false;  ///< B is stored [n,k] instead of [k,n]
  std::int64_t lda = 0;      ///< elements from one stored row to the next; 0: rows are contiguous
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  DType out_dtype = DType::f32;  ///< of C
  bool accumulate = false;       ///< add to C
  bool bias = false;
};

/// Bytes for B in tiles, and for every thread a slab of A in tiles and a block of partial sums. Depends on the OpenMP
/// threads.
std::int64_t amx_gemm_workspace_bytes(const AmxGemmDims& dims);

/// Requires amx_available(). The bits of C do not depend on the number of threads.
/// @param workspace amx_gemm_workspace_bytes(dims) bytes, 64-byte aligned.
void amx_gemm(const AmxGemmDims& dims, const bf16* a, const bf16* b, const bf16* bias, void* c,
              std::span<std::byte> workspace);

}  // namespace strata::cpu
