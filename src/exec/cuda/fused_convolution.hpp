#pragma once

/// @file
/// A convolution with its bias and ReLU as one kernel of cuDNN's, bound to addresses.

#include <cstddef>
#include <memory>
#include <span>

#include "exec/cuda/libraries.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

struct ConvolutionAddresses {
  std::byte* x = nullptr;
  std::byte* weight = nullptr;
  std::byte* bias = nullptr;
  std::byte* y = nullptr;
};

class FusedConvolution {
 public:
  /// Null where fused_convolution_condition() or where operands begin keeps it from serving, and, with a warning, where
  /// cuDNN has no engine.
  /// @param workspace convolution_workspace_bytes(dims) of it are cuDNN's.
  static std::shared_ptr<const FusedConvolution> if_there(Libraries& libraries, const ConvolutionDims& dims,
                                                          const ConvolutionAddresses& addresses,
                                                          std::span<std::byte> workspace);
  FusedConvolution(Libraries& libraries, const ConvolutionDims& dims, const ConvolutionAddresses& addresses,
                   std::span<std::byte> workspace);
  ~FusedConvolution();
  FusedConvolution(const FusedConvolution&) = delete;
  FusedConvolution& operator=(const FusedConvolution&) = delete;

  /// y = max(0, x * W + b), rounded once.
  void run(cudaStream_t stream) const;

 private:
  struct Call;
  std::unique_ptr<const Call> call_;
};

}  // namespace strata::cuda
