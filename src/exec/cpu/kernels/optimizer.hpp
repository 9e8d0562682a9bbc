#pragma once

/// @file
/// Optimizer updates over a flat slice of the parameters, one pass over memory. Masters and states are f32; the copy
/// that kernels compute with is rounded to bf16 in the same pass. Formulas are PyTorch's (torch.optim.SGD, Adam,
/// AdamW); scalars are formed in double.

#include <cstdint>

#include "base/dtype.hpp"

namespace strata::cpu {

/// The slice: n elements of every tensor.
struct ParameterSlice {
  std::int64_t n = 0;
  float* master = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;  ///< f32 or bf16
  const float* gradient_factor =
      nullptr;              ///< one value by which every gradient is multiplied first (clipping); null: 1
  bf16* compute = nullptr;  ///< receives the new master rounded to bf16; null: none
};

struct SgdOptions {
  double learning_rate = 0.0;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};

/// g = factor·gradient + weight_decay·w; without momentum w -= learning_rate·g. With momentum μ (dampening 0): u = μ·u
/// + g, then w -= learning_rate·(nesterov ? g + μ·u : u).
/// @param momentum u, n elements, zero before the first step; null if and only if options.momentum is 0.
void sgd_update(const SgdOptions& options, const ParameterSlice& slice, float* momentum);

struct AdamOptions {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;  ///< AdamW: w *= 1 - learning_rate·weight_decay; otherwise g += weight_decay·w
  std::int64_t step = 1;  ///< from 1
};

/// m += (1 - β1)·(g - m); v = β2·v + (1 - β2)·g²; w -= learning_rate/(1 - β1^step) · m / (√v/√(1 - β2^step) + epsilon).
/// @param m, v n elements each, zero before the first step.
void adam_update(const AdamOptions& options, const ParameterSlice& slice, float* m, float* v);

}  // namespace strata::cpu
