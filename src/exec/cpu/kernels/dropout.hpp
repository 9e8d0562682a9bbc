#pragma once

/// @file
/// Dropout whose mask is a function of the *global* element index: no mask is stored, backward makes it again, and any
/// split of the tensor over ranks or micro-batches drops the same elements.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/random.hpp"

namespace strata::cpu {

/// Element i of the operands is dropped if random.uniform(first_element + i) < probability; a kept one is multiplied by
/// 1/(1 - probability), computed in f32.
struct Dropout {
  float probability = 0.0F;         ///< in [0, 1)
  RandomStream random;              ///< of this operator and step
  std::uint64_t first_element = 0;  ///< global index of element 0: global row · row length + column
};

/// y[n] = x·mask/(1 - p). y may be x. f32 or bf16.
void dropout_forward(DType dtype, const void* x, void* y, std::int64_t n, const Dropout& dropout);
/// dx[n] = dy·mask/(1 - p). dx may be dy.
void dropout_backward(DType dtype, const void* dy, void* dx, std::int64_t n, const Dropout& dropout);

/// y[n] = a + b·mask/(1 - p), rounded once: a residual connection behind a dropout. y may be a or b.
void add_dropout(DType dtype, const void* a, const void* b, void* y, std::int64_t n, const Dropout& dropout);

}  // namespace strata::cpu
