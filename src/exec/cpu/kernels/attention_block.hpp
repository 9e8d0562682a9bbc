#pragma once

/// @file
/// What the two ways of multiplying inside attention (attention_plain.hpp, attention_packed.hpp) share: the block sizes
/// and the layout of scores.
///
/// Scores are kept transposed, keys down and queries across. A query is then a lane: the softmax needs no sum across
/// lanes, a query's maximum, sum, log-sum-exp and dropout bits are vectors loaded once, and the probabilities come out
/// in the order in which both the products over keys (out, dq) and the products over queries (dk, dv) want their
/// operands, so that nothing of seq · seq is transposed.

#include <algorithm>
#include <cstdint>

#include "base/ceil_div.hpp"
#include "exec/cpu/kernels/lane_transpose.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

inline constexpr std::int64_t block_queries = 64;                        // of one block of scores
inline constexpr std::int64_t query_groups = block_queries / num_lanes;  // vectors of a row of transposed scores
inline constexpr std::int64_t key_multiple = 32;                         // keys are padded with zeros to this
inline constexpr std::int64_t chunk_keys = 128;                          // keys that backward treats at a time

/// to[d, query] = from[query, d] for num_rows queries; zero for the other queries of the block and for d up to
/// padded_dim.
/// @param to [padded_dim, block_queries] f32; padded_dim is a multiple of 16.
template <typename T>
void load_transposed(const T* from, std::int64_t row_stride, std::int64_t num_rows, std::int64_t head_dim,
                     std::int64_t padded_dim, float* to) {
  for (std::int64_t row = 0; row < block_queries; row += num_lanes) {
    for (std::int64_t d = 0; d < padded_dim; d += num_lanes) {
      U32x16 words[num_lanes];
      for (std::int64_t i = 0; i < num_lanes; ++i) {
        F32x16 values{};
        if (row + i < num_rows && d + num_lanes <= head_dim) {
          values = load(from + (row + i) * row_stride + d);
        } else if (row + i < num_rows && d < head_dim) {
          values = load(from + (row + i) * row_stride + d, FirstLanes{static_cast<std::size_t>(head_dim - d)});
        }
        words[i] = std::bit_cast<U32x16>(values);
      }
      transpose_words(words);
      for (std::int64_t i = 0; i < num_lanes; ++i) {
        store(to + (d + i) * block_queries + row, std::bit_cast<F32x16>(words[i]));
      }
    }
  }
}

/// to[query, d] = from[d, query] · factor[query] for num_rows queries and d < head_dim, rounded once.
/// @param from [padded to a multiple of 16, block_queries]
template <typename T>
void store_transposed(const float* from, const F32x16 (&factor)[query_groups], std::int64_t num_rows,
                      std::int64_t head_dim, T* to, std::int64_t row_stride) {
  for (std::int64_t group = 0; group * num_lanes < num_rows; ++group) {
    const std::int64_t row = group * num_lanes;
    const std::int64_t rows = std::min(num_lanes, num_rows - row);
    for (std::int64_t d = 0; d < head_dim; d += num_lanes) {
      U32x16 words[num_lanes];
      for (std::int64_t i = 0; i < num_lanes; ++i) {
        words[i] = std::bit_cast<U32x16>(load(from + (d + i) * block_queries + row) * factor[group]);
      }
      transpose_words(words);
      const std::int64_t columns = std::min(num_lanes, head_dim - d);
      for (std::int64_t i = 0; i < rows; ++i) {
        T* const row_start = to + (row + i) * row_stride + d;
        if (columns == num_lanes) {
          store(row_start, std::bit_cast<F32x16>(words[i]));
        } else {
          store(row_start, std::bit_cast<F32x16>(words[i]), FirstLanes{static_cast<std::size_t>(columns)});
        }
      }
    }
  }
}

/// to[row, d] = from[row, d] · factor, rounded once.
template <typename T>
void store_rows(const float* from, std::int64_t from_stride, float factor, std::int64_t num_rows, std::int64_t head_dim,
                T* to, std::int64_t row_stride) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for_lanes(head_dim, [&](std::int64_t d, auto lanes) {
      store(to + row * row_stride + d, load(from + row * from_stride + d, lanes) * factor, lanes);
    });
  }
}

}  // namespace strata::cpu
