#pragma once

/// @file
/// Softmax and cross-entropy in one: the loss is written and the logits are overwritten with their gradient, so that
/// the largest activation of a language model exists once (the fused classifier of llm.c).

#include <cstdint>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cpu {

using strata::CrossEntropyDims;

/// loss[r] = ln Σ_c exp(logits[r,c]) - logits[r,targets[r]], in f32. Reads the logits.
/// @param targets [rows], each in [0, classes) or ignored_target. @throws InternalError naming one that is neither.
void cross_entropy_forward(const CrossEntropyDims& dims, const void* logits, const std::int32_t* targets, float* loss);

/// The same, and logits[r,c] := (softmax(logits[r])[c] - [c = targets[r]])·scale, rounded once. Padding between rows is
/// left alone.
void cross_entropy_gradient(const CrossEntropyDims& dims, void* logits, const std::int32_t* targets, float scale,
                            float* loss);

}  // namespace strata::cpu
