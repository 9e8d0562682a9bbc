#pragma once

/// @file
/// The libraries of one device: their handles, and what all their calls and our kernels' share.

#include <cublasLt.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/product_choices.hpp"
#include "exec/device/numerics.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

class AttentionPlan;
class ConvolutionPlan;

/// Handles of the device that is current at construction. Calls come from one thread.
class Libraries {
 public:
  explicit Libraries(const Numerics& numerics);
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  cublasLtHandle_t blas() const { return blas_; }
  /// Created when first asked for: most models have no use for it.
  cudnnHandle_t dnn();
  const Numerics& numerics() const { return numerics_; }
  /// Forward, causal, with dropout, batch, seq, num_heads, num_kv_heads, head_dim.
  using AttentionKey =
      std::tuple<bool, bool, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  /// Those of the calls bound so far.
  std::map<AttentionKey, std::shared_ptr<const AttentionPlan>>& attention_plans() { return attention_plans_; }
  /// Those with a bias and a ReLU of the calls bound so far; null where cuDNN has none.
  std::vector<std::pair<ConvolutionDims, std::shared_ptr<const ConvolutionPlan>>>& convolution_plans() {
    return convolution_plans_;
  }
  /// Of the products bound so far.
  ProductChoices& product_choices() { return product_choices_; }
  /// Whether forward, and sizes, of the products with GELU bound so far for which cuBLASLt has no kernel.
  std::vector<std::pair<bool, LinearDims>>& products_without_gelu() { return products_without_gelu_; }
  /// Sequence, head_dim, theta, first position.
  using RotaryKey = std::tuple<std::int64_t, std::int64_t, double, std::int64_t>;
  /// Tables of angles (kernels/token.hpp) of the calls bound so far: of all layers and micro-batches one.
  std::map<RotaryKey, std::shared_ptr<const DeviceArena>>& rotary_angles() { return rotary_angles_; }

 private:
  Numerics numerics_;
  cublasLtHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
  std::map<AttentionKey, std::shared_ptr<const AttentionPlan>> attention_plans_;
  std::vector<std::pair<ConvolutionDims, std::shared_ptr<const ConvolutionPlan>>> convolution_plans_;
  ProductChoices product_choices_;
  std::vector<std::pair<bool, LinearDims>> products_without_gelu_;
  std::map<RotaryKey, std::shared_ptr<const DeviceArena>> rotary_angles_;
};

/// @throws InternalError with the library's own text and @p what was tried.
void check(cublasStatus_t status, const char* what);
void check(cudnnStatus_t status, const char* what);

cudaDataType_t cuda_type(DType dtype);
cudnnDataType_t cudnn_type(DType dtype);

}  // namespace strata::cuda
