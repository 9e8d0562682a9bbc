#pragma once

/// @file
/// One matrix product of the linear layer on cuBLASLt: described and its kernel chosen when it is bound to addresses,
/// since the choice depends on their alignment.

#include <cstddef>
#include <memory>
#include <span>

#include "exec/cuda/libraries.hpp"
#include "exec/device/matmul_layout.hpp"

namespace strata::cuda {

/// D (+)= op(A) · op(B) [+ bias along D's rows], accumulated in f32 and rounded once.
struct MatmulOperands {
  MatmulLayout layout;
  DType dtype = DType::f32;      ///< of A, B and bias
  DType out_dtype = DType::f32;  ///< of D; that of A and B where there is a bias
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;  ///< null: none
  void* d = nullptr;
  bool accumulate = false;
};

class Matmul {
 public:
  /// @param workspace at least matmul_workspace_bytes. @throws Unsupported where cuBLASLt has no kernel.
  Matmul(Libraries& libraries, const MatmulOperands& operands, std::span<std::byte> workspace);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  void run(cudaStream_t stream) const;

 private:
  void choose(std::size_t workspace_bytes);
  Libraries& libraries_;
  MatmulOperands operands_;
  std::byte* workspace_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

}  // namespace strata::cuda
