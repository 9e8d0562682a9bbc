/// @file
/// Embedding. Backward sorts the tokens, so that one thread owns a row of the table's gradient: no atomics, one
/// rounding, fixed order.

#include "exec/cpu/kernels/embedding.hpp"

#include <algorithm>
#include <cstring>

#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

namespace {

std::int64_t table_rows(const EmbeddingDims& dims) { return dims.table_rows < 0 ? dims.vocabulary : dims.table_rows; }

std::int64_t row_elements(const EmbeddingDims& dims) { return dims.row == 0 ? dims.width : dims.row; }

void check(const EmbeddingDims& dims, const std::int32_t* tokens, const void* positions) {
  STRATA_INVARIANT(row_elements(dims) >= dims.width, fmt::format("{} columns in rows of {}", dims.width, dims.row));
  STRATA_INVARIANT((positions != nullptr) == (dims.num_positions != 0), "a position table has rows");
  STRATA_INVARIANT(
      positions == nullptr || dims.first_position + std::min(dims.sequence, dims.rows) <= dims.num_positions,
      fmt::format("positions {} to {} of {}", dims.first_position, dims.first_position + dims.sequence,
                  dims.num_positions));
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    STRATA_INVARIANT(tokens[row] >= 0 && tokens[row] < dims.vocabulary,
                     fmt::format("token {} at row {} with a vocabulary of {}", tokens[row], row, dims.vocabulary));
  }
}

template <typename T>
void forward(const EmbeddingDims& dims, const std::int32_t* tokens, const T* table, const T* positions, T* y) {
  const std::int64_t width = dims.width;
  const std::int64_t num_rows = table_rows(dims);
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const std::int64_t index = tokens[row] - dims.first_token;
    const bool here = index >= 0 && index < num_rows;
    const T* token_row = table + (here ? index : 0) * width;
    const T* position_row = positions + (dims.first_position + row % dims.sequence) * width;
    T* y_row = y + row * row_elements(dims);
    if (positions == nullptr) {
      if (here) {
        std::memcpy(static_cast<void*>(y_row), token_row, sizeof(T) * static_cast<std::size_t>(width));
      } else {
        std::memset(static_cast<void*>(y_row), 0, sizeof(T) * static_cast<std::size_t>(width));
      }
      continue;
    }
    for_lanes(width, [=](std::int64_t i, auto lanes) {
      const F32x16 position = load(position_row + i, lanes);
      store(y_row + i, here ? load(token_row + i, lanes) + position : position, lanes);
    });
  }
}

/// out[width] (+)= the sum of @p num_rows rows of dy, where row_at(j) is the first element of the j-th.
template <typename T, typename G, typename RowAt>
void sum_rows(const T* dy, std::int64_t width, std::int64_t num_rows, G* out, bool accumulate, RowAt&& row_at) {
  for_lanes(width, [&](std::int64_t i, auto lanes) {
    F32x16 sum{};
    for (std::int64_t j = 0; j < num_rows; ++j) {
      sum += load(dy + row_at(j) + i, lanes);
    }
    if (accumulate) {
      sum += load(out + i, lanes);
    }
    store(out + i, sum, lanes);
  });
}

template <typename G>
void zero(G* values, std::int64_t n) {
  for_chunks(n, [=](std::int64_t begin, std::int64_t count) {
    std::memset(static_cast<void*>(values + begin), 0, sizeof(G) * static_cast<std::size_t>(count));
  });
}

/// @param order room for dims.rows keys: token in the high half, row in the low, so that equal tokens keep the order of
/// rows.
template <typename T, typename G>
void backward_table(const EmbeddingDims& dims, const std::int32_t* tokens, const T* dy, G* dtable, bool accumulate,
                    std::uint64_t* order) {
  if (!accumulate) {
    zero(dtable, table_rows(dims) * dims.width);
  }
  std::int64_t num_here = 0;
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const std::int64_t index = tokens[row] - dims.first_token;
    if (index >= 0 && index < table_rows(dims)) {
      order[num_here++] = static_cast<std::uint64_t>(index) << 32U | static_cast<std::uint64_t>(row);
    }
  }
  std::sort(order, order + num_here);
#pragma omp parallel for schedule(static)
  for (std::int64_t first = 0; first < num_here; ++first) {
    const std::uint64_t index = order[first] >> 32U;
    if (first > 0 && order[first - 1] >> 32U == index) {
      continue;  // the iteration at the token's first row sums all of them
    }
    std::int64_t end = first + 1;
    while (end < num_here && order[end] >> 32U == index) {
      ++end;
    }
    sum_rows(dy, dims.width, end - first, dtable + static_cast<std::int64_t>(index) * dims.width, accumulate,
             [=, row = row_elements(dims)](std::int64_t j) {
               return static_cast<std::int64_t>(order[first + j] & 0xffffffffU) * row;
             });
  }
}

template <typename T, typename G>
void backward_positions(const EmbeddingDims& dims, const T* dy, G* dpositions, bool accumulate) {
  if (!accumulate) {
    zero(dpositions, dims.num_positions * dims.width);
  }
  const std::int64_t num_used = std::min(dims.sequence, dims.rows);
#pragma omp parallel for schedule(static)
  for (std::int64_t position = 0; position < num_used; ++position) {
    const std::int64_t num_samples = (dims.rows - position + dims.sequence - 1) / dims.sequence;
    sum_rows(dy, dims.width, num_samples, dpositions + (dims.first_position + position) * dims.width, accumulate,
             [=, &dims](std::int64_t sample) { return (sample * dims.sequence + position) * row_elements(dims); });
  }
}

}  // namespace

void embedding_forward(const EmbeddingDims& dims, const std::int32_t* tokens, const void* table, const void* positions,
                       void* y) {
  check(dims, tokens, positions);
  with_storage(dims.dtype, [&]<typename T>() {
    forward(dims, tokens, static_cast<const T*>(table), static_cast<const T*>(positions), static_cast<T*>(y));
  });
}

std::int64_t embedding_backward_workspace_bytes(const EmbeddingDims& dims) {
  return dims.rows * static_cast<std::int64_t>(sizeof(std::uint64_t));
}

void embedding_backward(const EmbeddingDims& dims, const EmbeddingBackwardOperands& operands,
                        const EmbeddingAccumulate& accumulate, std::span<std::byte> workspace) {
  require_workspace(workspace, embedding_backward_workspace_bytes(dims), "embedding_backward");
  check(dims, operands.tokens, operands.dpositions);
  auto* order = reinterpret_cast<std::uint64_t*>(workspace.data());
  with_storage(dims.dtype, [&]<typename T>() {
    with_storage(dims.gradient_dtype, [&]<typename G>() {
      const auto* dy = static_cast<const T*>(operands.dy);
      backward_table(dims, operands.tokens, dy, static_cast<G*>(operands.dtable), accumulate.table, order);
      if (operands.dpositions != nullptr) {
        backward_positions(dims, dy, static_cast<G*>(operands.dpositions), accumulate.positions);
      }
    });
  });
}

}  // namespace strata::cpu
