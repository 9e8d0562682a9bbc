#pragma once

/// @file
/// Flat tensors: activations, residual addition, dropout, casts and the sums behind gradient clipping; one pass over
/// memory each. Contracts are those of the CPU kernels of the same names; calls are queued on @p stream.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.hpp"
#include "base/random.hpp"
#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cuda {

void fill(DType dtype, void* y, std::int64_t n, float value, cudaStream_t stream);
/// y = x, rounded or widened where the types differ.
void cast(DType from, const void* x, DType to, void* y, std::int64_t n, cudaStream_t stream);
/// y += x.
void accumulate(DType x_dtype, const void* x, DType y_dtype, void* y, std::int64_t n, cudaStream_t stream);
void add(DType dtype, const void* a, const void* b, void* y, std::int64_t n, cudaStream_t stream);

void gelu_forward(DType dtype, const void* x, void* y, std::int64_t n, cudaStream_t stream);
void gelu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n, cudaStream_t stream);
void gelu_erf_forward(DType dtype, const void* x, void* y, std::int64_t n, cudaStream_t stream);
void gelu_erf_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n, cudaStream_t stream);
void relu_forward(DType dtype, const void* x, void* y, std::int64_t n, cudaStream_t stream);
void relu_backward(DType dtype, const void* dy, const void* y, void* dx, std::int64_t n, cudaStream_t stream);
void swiglu_forward(DType dtype, const void* x, void* y, std::int64_t rows, std::int64_t width, cudaStream_t stream);
void swiglu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t rows, std::int64_t width,
                     cudaStream_t stream);

struct Dropout {
  float probability = 0.0F;              ///< in [0, 1)
  const RandomStream* random = nullptr;  ///< on the device
  std::uint64_t first_element = 0;
};
/// y = x·mask/(1 - probability), for forward and backward; the mask is that of elements first_element ….
void dropout(DType dtype, const void* x, void* y, std::int64_t n, const Dropout& dropout, cudaStream_t stream);
/// The same of x[dims.elements] without gaps whose numbers are in runs: element i has the number first_element + that
/// of the element where permute(dims) would find it.
/// @throws Unsupported where there are 2³¹ elements or more.
void dropout_of_runs(const PermuteDims& dims, const void* x, void* y, const Dropout& dropout, cudaStream_t stream);

/// *sum (+)= Σ x². @param workspace max_sum_blocks doubles, 8-byte aligned.
void sum_of_squares(DType dtype, const void* x, std::int64_t n, float* sum, bool accumulate, double* workspace,
                    cudaStream_t stream);
/// *sum (+)= scale · Σ x.
void sum_of_loss(const float* x, std::int64_t n, float scale, float* sum, bool accumulate, double* workspace,
                 cudaStream_t stream);
/// All three on the device; @p norm may be null.
void clip_factor(const float* sum_of_squares, float clip_norm, float* factor, float* norm, cudaStream_t stream);

/// Bit for bit the CPU's.
void initialize_normal(const InitializedSlice& slice, float mean, float standard_deviation, cudaStream_t stream);
void initialize_uniform(const InitializedSlice& slice, float lower, float upper, cudaStream_t stream);

}  // namespace strata::cuda
