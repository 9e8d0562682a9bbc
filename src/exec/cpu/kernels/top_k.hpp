#pragma once

/// @file
/// What evaluation asks of logits: the loss, and whether the target is among the classes with the largest ones.

#include <cstdint>

#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cpu {

/// Of each row: the loss as cross_entropy_forward() has it, and 1 where fewer than one, or five, classes have a larger
/// logit than the target's, else 0. Of equal logits that of the first class counts as larger. Reads the logits.
/// @param targets [rows], each in [0, classes) or ignored_target, whose row has 0 everywhere.
/// @throws InternalError naming one that is neither.
void top_k(const CrossEntropyDims& dims, const void* logits, const std::int32_t* targets, const TopKOutputs& outputs);

}  // namespace strata::cpu
