#pragma once

/// @file
/// Convolutions on cuDNN with NHWC activations and weights [out][kernel_h][kernel_w][in]: the contract of
/// exec/cpu/kernels/convolution. The algorithm is chosen when the call is bound, among those that fit the workspace.

#include <cstddef>
#include <span>

#include "exec/cuda/libraries.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

class Convolution {
 public:
  enum class Pass { forward, backward_input, backward_weight };
  /// @param workspace convolution_workspace_bytes(dims) of it are cuDNN's. @throws Unsupported where no algorithm
  /// serves.
  Convolution(Libraries& libraries, Pass pass, const ConvolutionDims& dims, std::span<std::byte> workspace);
  ~Convolution();
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  /// The product alone: bias and ReLU are its caller's.
  void forward(const void* x, const void* weight, void* y, cudaStream_t stream) const;
  void backward_input(const void* dy, const void* weight, void* dx, cudaStream_t stream) const;
  /// dW in the dtype of the activations, overwritten: sums are f32 and rounded once.
  void backward_weight(const void* dy, const void* x, void* dweight, cudaStream_t stream) const;

 private:
  void choose(Pass pass, const ConvolutionDims& dims);
  template <typename Result, typename BytesOf>
  void take(std::span<const Result> candidates, const ConvolutionDims& dims, const BytesOf& bytes_of);
  Libraries& libraries_;
  std::byte* workspace_;
  cudnnTensorDescriptor_t x_ = nullptr;
  cudnnTensorDescriptor_t y_ = nullptr;
  cudnnFilterDescriptor_t weight_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  int algorithm_ = -1;  ///< of the pass's own enumeration
  std::size_t algorithm_bytes_ = 0;
};

}  // namespace strata::cuda
