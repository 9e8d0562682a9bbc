#pragma once

/// @file
/// The oneDNN library that runs and how it multiplies bf16, for the record.

#include <string>

namespace strata::cpu {

std::string onednn_version();

/// "native", or "f32" where bf16 operands are multiplied as f32 copies (kernels/f32_copy.hpp).
std::string bf16_products();

}  // namespace strata::cpu
