#pragma once

/// @file
/// The residual connection. With a dropout on its branch it is add_dropout() of dropout.hpp.

#include <cstdint>

#include "base/dtype.hpp"

namespace strata::cpu {

/// y[n] = a + b, summed in f32 and rounded once; f32 or bf16. y may be a or b.
void add(DType dtype, const void* a, const void* b, void* y, std::int64_t n);

}  // namespace strata::cpu
