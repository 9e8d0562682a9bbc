#pragma once

/// @file
/// The products inside attention with f32 operands, on any processor: a register block over plain, padded
/// rows. Every product of forward and backward reads its operands as they lie, so nothing but the block of queries is
/// rearranged.

#include <cstdint>

#include "exec/cpu/kernels/attention_block.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"

namespace strata::cpu {

struct StridedDims {
  std::int64_t m = 0;  ///< a multiple of 8
  std::int64_t n = 0;  ///< a multiple of 16
  std::int64_t k = 0;
};
/// A[i, k] at data[i · row_stride + k · k_stride].
struct StridedOperand {
  const float* data;
  std::int64_t row_stride;
  std::int64_t k_stride;
};
/// Matrices whose rows are contiguous, row_stride elements from one to the next.
struct ConstMatrixRows {
  const float* data;
  std::int64_t row_stride;
};
struct MatrixRows {
  float* data;
  std::int64_t row_stride;
};

/// C[m, n] = or += A[m, k] · B[k, n].
void multiply_strided(const StridedDims& dims, StridedOperand a, ConstMatrixRows b, MatrixRows c, bool add);

/// The operands of one key-value head and one block of queries. T is the storage type, float or bf16; all arithmetic is
/// f32.
template <typename T>
class PlainProducts {
 public:
  using Storage = T;

  PlainProducts(WorkspaceCutter& cutter, std::int64_t seq, std::int64_t head_dim, bool backward)
      : seq_(seq), head_dim_(head_dim), padded_dim_(round_up(head_dim, num_lanes)) {
    const std::int64_t keys = round_up(seq, key_multiple);
    const auto take = [&](std::int64_t rows, std::int64_t columns) {
      return reinterpret_cast<float*>(cutter.take(rows * columns * size_of(DType::f32)));
    };
    k_ = take(keys, padded_dim_);
    v_ = take(keys, padded_dim_);
    q_transposed_ = take(padded_dim_, block_queries);
    result_ = take(padded_dim_, block_queries);
    if (!backward) {
      probabilities_ = take(keys, block_queries);
      return;
    }
    probabilities_ = take(chunk_keys, block_queries);
    score_gradients_ = take(chunk_keys, block_queries);
    dy_transposed_ = take(padded_dim_, block_queries);
    q_ = take(block_queries, padded_dim_);
    dy_ = take(block_queries, padded_dim_);
    dk_ = take(keys, padded_dim_);
    dv_ = take(keys, padded_dim_);
  }

  void load_keys(const T* k, std::int64_t k_stride, const T* v, std::int64_t v_stride) {
    const std::int64_t keys = round_up(seq_, key_multiple);
    load_rows(k, k_stride, seq_, keys, k_);
    load_rows(v, v_stride, seq_, keys, v_);
  }
  void clear_key_gradients() {
    const std::int64_t count = round_up(seq_, key_multiple) * padded_dim_;
    std::fill_n(dk_, count, 0.0F);
    std::fill_n(dv_, count, 0.0F);
  }
  void load_queries(const T* q, std::int64_t stride, std::int64_t num_rows) {
    load_transposed(q, stride, num_rows, head_dim_, padded_dim_, q_transposed_);
  }
  /// What backward needs of a block besides load_queries.
  void load_query_rows(const T* q, std::int64_t q_stride, const T* dy, std::int64_t dy_stride, std::int64_t num_rows) {
    load_rows(q, q_stride, num_rows, block_queries, q_);
    load_rows(dy, dy_stride, num_rows, block_queries, dy_);
    load_transposed(dy, dy_stride, num_rows, head_dim_, padded_dim_, dy_transposed_);
  }

  /// scores[key, query] = k · q of keys begin … begin + count - 1.
  void scores(std::int64_t begin, std::int64_t count, float* scores) const {
    multiply_strided({.m = count, .n = block_queries, .k = head_dim_}, {k_ + begin * padded_dim_, padded_dim_, 1},
                     {q_transposed_, block_queries}, {scores, block_queries}, false);
  }
  /// gradients[key, query] = v · dy, likewise.
  void probability_gradients(std::int64_t begin, std::int64_t count, float* gradients) const {
    multiply_strided({.m = count, .n = block_queries, .k = head_dim_}, {v_ + begin * padded_dim_, padded_dim_, 1},
                     {dy_transposed_, block_queries}, {gradients, block_queries}, false);
  }

  /// Probabilities of keys `key` (even) and key + 1 for a group of sixteen queries; forward's operand, keys from 0.
  STRATA_LANES void put_probabilities(std::int64_t key, std::int64_t group, F32x16 first, F32x16 second) {
    float* const at = probabilities_ + key * block_queries + group * num_lanes;
    store(at, first);
    store(at + block_queries, second);
  }
  /// Backward's operands, keys from the start of the chunk.
  STRATA_LANES void put_chunk(std::int64_t key, std::int64_t group, F32x16 first, F32x16 second, F32x16 first_gradient,
                              F32x16 second_gradient) {
    put_probabilities(key, group, first, second);
    float* const at = score_gradients_ + key * block_queries + group * num_lanes;
    store(at, first_gradient);
    store(at + block_queries, second_gradient);
  }

  /// result()[d, query] = Σ v · probability over keys 0 … num_keys - 1.
  void sum_values(std::int64_t num_keys) {
    for (std::int64_t begin = 0; begin < num_keys; begin += chunk_keys) {  // a chunk of both operands stays cached
      sum_over_keys(v_ + begin * padded_dim_, std::min(chunk_keys, num_keys - begin),
                    probabilities_ + begin * block_queries, begin > 0);
    }
  }
  /// dv += probability · dy, dk += score gradient · q, result()[d, query] = or += k · score gradient, of a chunk of
  /// keys.
  void sum_gradients(std::int64_t begin, std::int64_t count) {
    const std::int64_t offset = begin * padded_dim_;
    const StridedDims dims{.m = count, .n = padded_dim_, .k = block_queries};
    multiply_strided(dims, {probabilities_, block_queries, 1}, {dy_, padded_dim_}, {dv_ + offset, padded_dim_}, true);
    multiply_strided(dims, {score_gradients_, block_queries, 1}, {q_, padded_dim_}, {dk_ + offset, padded_dim_}, true);
    sum_over_keys(k_ + offset, count, score_gradients_, begin > 0);
  }

  const float* result() const { return result_; }  ///< [padded_dim, block_queries]
  const float* dk() const { return dk_; }          ///< [seq, padded_dim]
  const float* dv() const { return dv_; }
  std::int64_t padded_dim() const { return padded_dim_; }

 private:
  void load_rows(const T* from, std::int64_t stride, std::int64_t num_rows, std::int64_t padded_rows, float* to) const {
    store_rows(from, stride, num_rows, to);
    std::fill_n(to + num_rows * padded_dim_, (padded_rows - num_rows) * padded_dim_, 0.0F);
  }
  void store_rows(const T* from, std::int64_t stride, std::int64_t num_rows, float* to) const {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      for_lanes(head_dim_, [&](std::int64_t d, auto lanes) {  // the missing lanes are zeros and are stored: padding
        store(to + row * padded_dim_ + d, load(from + row * stride + d, lanes));
      });
    }
  }
  void sum_over_keys(const float* rows, std::int64_t count, const float* weights, bool add) {
    multiply_strided({.m = padded_dim_, .n = block_queries, .k = count}, {rows, 1, padded_dim_},
                     {weights, block_queries}, {result_, block_queries}, add);
  }

  std::int64_t seq_;
  std::int64_t head_dim_;
  std::int64_t padded_dim_;
  float* k_ = nullptr;  // [keys, padded_dim], as v_, dk_ and dv_
  float* v_ = nullptr;
  float* q_transposed_ = nullptr;  // [padded_dim, block_queries], as dy_transposed_ and result_
  float* dy_transposed_ = nullptr;
  float* result_ = nullptr;
  float* probabilities_ = nullptr;  // [keys or chunk_keys, block_queries], as score_gradients_
  float* score_gradients_ = nullptr;
  float* q_ = nullptr;  // [block_queries, padded_dim], as dy_
  float* dy_ = nullptr;
  float* dk_ = nullptr;
  float* dv_ = nullptr;
};

}  // namespace strata::cpu
