#pragma once

/// @file
/// One matrix product of the linear layer on cuBLASLt: described and its kernel chosen when it is bound to addresses,
/// since the choice depends on their alignment. cuBLASLt's heuristic guesses; where Numerics::time_products is set, the
/// kernels that it names are timed there, by the first product of each shape.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/libraries.hpp"
#include "exec/cuda/product_choices.hpp"
#include "exec/device/matmul_layout.hpp"

namespace strata::cuda {

/// D (+)= op(A) · op(B) [+ bias along D's rows], accumulated in f32 and rounded once. A product may write the sums of
/// op(B) over its rows too, which is the gradient of a bias where B is that of the output: B is read once then. Or all
/// of D but what was there goes through GELU, in its tanh form, which is cuBLASLt's, before it is rounded.
struct MatmulOperands {
  enum class Activation : std::uint8_t {
    none,
    gelu,           ///< D is gelu(·), and `before` what it is applied to
    gelu_gradient,  ///< D is the product times the derivative of GELU at `before`
  };

  MatmulLayout layout;
  DType dtype = DType::f32;      ///< of A, B and bias
  DType out_dtype = DType::f32;  ///< of D; that of A and B where there is a bias
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;     ///< null: none
  void* bias_gradient = nullptr;  ///< of out_dtype, n values, at a multiple of 16 bytes, no bias beside; null: none
  void* d = nullptr;
  bool accumulate = false;  ///< not through an activation
  Activation activation = Activation::none;
  /// As D: written by gelu, null: nobody needs it; read by gelu_gradient. Begins at a multiple of 16 bytes, and so do
  /// its columns.
  void* before = nullptr;
};

class Matmul {
 public:
  /// Where kernels are timed, writes D and what else the product writes.
  /// @param workspace at least matmul_workspace_bytes. @throws Unsupported where cuBLASLt has no kernel.
  Matmul(Libraries& libraries, const MatmulOperands& operands, std::span<std::byte> workspace);
  /// Null where cuBLASLt has no kernel.
  static std::shared_ptr<Matmul> if_there(Libraries& libraries, const MatmulOperands& operands,
                                          std::span<std::byte> workspace);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  void run(cudaStream_t stream) const;

 private:
  std::string shape() const;
  std::vector<cublasLtMatmulHeuristicResult_t> kernels(std::size_t workspace_bytes) const;
  void choose(std::size_t workspace_bytes);
  void time_kernels();
  cublasStatus_t multiply(const cublasLtMatmulHeuristicResult_t& kernel, cudaStream_t stream) const;
  void destroy();
  Libraries& libraries_;
  MatmulOperands operands_;
  std::byte* workspace_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  ProductChoice* choice_ = nullptr;  ///< of all products of this shape
};

}  // namespace strata::cuda
