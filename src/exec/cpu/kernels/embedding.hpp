#pragma once

/// @file
/// Token embedding with optional learned positions. The table may be a range of the vocabulary's rows (a
/// vocabulary-parallel shard): tokens outside of it contribute zero. Or some of its columns as a matrix of its own: y
/// and dy are then these columns of rows that are longer.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "exec/kernel_dims.hpp"
#include "exec/kernel_operands.hpp"

namespace strata::cpu {

using strata::EmbeddingDims;

/// y[rows,width] = table[tokens[r] - first_token] + positions[position of r]; zero instead of the table's row for a
/// token outside of it.
/// @param positions [num_positions,width], null where there is none. A vocabulary-parallel group sums its y: one member
/// alone has positions.
/// @throws InternalError naming a token that is not in the vocabulary.
void embedding_forward(const EmbeddingDims& dims, const std::int32_t* tokens, const void* table, const void* positions,
                       void* y);

std::int64_t embedding_backward_workspace_bytes(const EmbeddingDims& dims);

/// dtable[table_rows,width] (+)= Σ of the rows of dy with that token; dpositions[num_positions,width] (+)= Σ of the
/// rows of dy at that position. Each row of a gradient is summed in f32 in the order of dy's rows and rounded once,
/// whatever the number of threads. Without accumulation rows that no token names become zero.
/// @param workspace embedding_backward_workspace_bytes(dims) bytes, 64-byte aligned; contents are lost.
void embedding_backward(const EmbeddingDims& dims, const EmbeddingBackwardOperands& operands,
                        const EmbeddingAccumulate& accumulate, std::span<std::byte> workspace);

}  // namespace strata::cpu
