#pragma once

/// @file
/// Token embedding with optional learned positions. The table may be a range of the vocabulary's rows (a
/// vocabulary-parallel shard): tokens outside of it contribute zero. Or some of its columns as a matrix of its own: y
/// and dy are then these columns of rows that are longer.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace strata::cpu {

struct EmbeddingDims {
  std::int64_t rows = 0;  ///< tokens of this call: samples · sequence
  std::int64_t sequence = 1;
  std::int64_t width = 0;
  std::int64_t row = 0;             ///< elements from one row of y and dy to the next; 0: `width`, rows are contiguous
  std::int64_t vocabulary = 0;      ///< valid tokens are [0, vocabulary)
  std::int64_t first_token = 0;     ///< the table holds rows [first_token, first_token + table_rows) of the vocabulary
  std::int64_t table_rows = 0;      ///< 0: all of the vocabulary
  std::int64_t first_position = 0;  ///< row r stands at position first_position + r % sequence
  std::int64_t num_positions = 0;   ///< rows of the position table; 0: there is none
  DType dtype = DType::f32;         ///< of the tables, y and dy: f32 or bf16
  DType gradient_dtype = DType::f32;  ///< of dtable and dpositions: f32 or bf16
};

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
/// @param dpositions null where there is none.
/// @param workspace embedding_backward_workspace_bytes(dims) bytes, 64-byte aligned; contents are lost.
void embedding_backward(const EmbeddingDims& dims, const std::int32_t* tokens, const void* dy, void* dtable,
                        bool accumulate_table, void* dpositions, bool accumulate_positions,
                        std::span<std::byte> workspace);

}  // namespace strata::cpu
