#pragma once

/// @file
/// Optimizer updates over flat slices of the parameters, one pass over memory; formulas are
/// exec/cpu/kernels/optimizer's. A launch takes most_slices_of_launch slices of any sizes: a model has hundreds of
/// parameters, most of them smaller than what a launch costs.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace strata::cuda {

/// The slice: n elements of every tensor, on the device.
struct ParameterSlice {
  std::int64_t n = 0;
  float* master = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;
  const float* gradient_factor = nullptr;  ///< null: 1
  void* compute = nullptr;                 ///< bf16; null: none
  float* first_state = nullptr;            ///< Adam's first moment, or SGD's momentum; null: none
  float* second_state = nullptr;           ///< Adam's second moment; null: none
  const void* factors = nullptr;           ///< AdamFactors of adam_update(), SgdFactors of sgd_update()
};
/// As many as fit among the parameters of a kernel, whose limit is 4 KiB.
constexpr std::size_t most_slices_of_launch = 48;

/// Scalars as the host forms them in double, once a step.
struct AdamFactors {
  float rate = 0.0F;  ///< learning_rate / (1 - β1^step)
  float inverse_root_correction = 0.0F;
  float weight_of_gradient = 0.0F;
  float beta2 = 0.0F;
  float weight_of_square = 0.0F;
  float epsilon = 0.0F;
  float shrink = 1.0F;  ///< of the weight: AdamW's decay
  float decay = 0.0F;   ///< added to the gradient: Adam's
};
struct AdamSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;
};
/// @param step from 1.
AdamFactors adam_factors(const AdamSettings& settings, double learning_rate, std::int64_t step);

struct SgdFactors {
  float rate = 0.0F;
  float decay = 0.0F;
  float momentum = 0.0F;
  bool has_momentum = false;
};
struct SgdSettings {
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool has_momentum = false;
};
SgdFactors sgd_factors(const SgdSettings& settings, double learning_rate);

/// @param slices with gradients of one dtype.
void adam_update(std::span<const ParameterSlice> slices, cudaStream_t stream);
void sgd_update(std::span<const ParameterSlice> slices, cudaStream_t stream);

}  // namespace strata::cuda
