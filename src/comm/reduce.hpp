#pragma once

/// @file
/// The arithmetic and the copies of collectives. bf16 is accumulated in float and rounded once a call; operands are
/// combined in the order given, so equal calls give equal bits on every rank.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/collective.hpp"
#include "base/dtype.hpp"

namespace strata::comm {

/// How a destination is written: through the cache, or around it because nobody reads it soon (the write then costs no
/// read of the old line).
enum class Store : std::uint8_t { cached, streaming };

/// @throws Unsupported naming the type unless it is f32 or bf16.
void require_reducible(DType dtype);

/// output[i] = inputs[0][i] op inputs[1][i] op …, left to right, for i < num_elements; also written (cached) to
/// @p second_output if that is not null. The output may be one of the inputs.
void reduce(std::span<const std::byte* const> inputs, std::byte* output, Store store, std::byte* second_output,
            std::int64_t num_elements, DType dtype, Reduction reduction);

void copy(std::byte* output, const std::byte* input, std::int64_t num_bytes, Store store);

/// Streaming stores become visible to other cores in order with what follows.
void finish_streaming();

}  // namespace strata::comm
