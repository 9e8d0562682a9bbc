#pragma once

/// @file
/// Which probabilities of an attention are dropped, as a tensor, for libraries whose own random numbers are not by
/// global index. Calls are queued on @p stream.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/random.hpp"
#include "exec/kernel_dims.hpp"

namespace strata::cuda {

/// 1 where a probability is kept, 0 where it is dropped, and where causality hides it.
/// @param mask [batch, num_heads, seq, dropout_mask_row()] bf16 at a multiple of 16 bytes.
/// @throws Unsupported where it has 2³⁴ elements or more.
void attention_dropout_mask(const AttentionDims& dims, std::byte* mask, const RandomStream* random,
                            cudaStream_t stream);

}  // namespace strata::cuda
