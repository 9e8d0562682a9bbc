#pragma once

/// @file
/// A tensor's dims in another order: what stands before and after a collective that changes a layout.

#include "exec/kernel_dims.hpp"

namespace strata::cpu {

/// y[elements] ← runs of x; see PermuteDims. Elements of f32 or bf16.
void permute(const PermuteDims& dims, const void* x, void* y);

}  // namespace strata::cpu
