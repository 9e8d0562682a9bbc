#pragma once

/// @file
/// The products inside attention on AMX tiles or VDPBF16PS: bf16 operands, f32 sums. Keys and values are packed once
/// for a head, queries once for a block; probabilities and score gradients are written into tiles by the loops that
/// compute them.

#include <algorithm>
#include <cstdint>

#include "exec/cpu/kernels/attention_block.hpp"
#include "exec/cpu/kernels/bf16_panels.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"

namespace strata::cpu {

/// As PlainProducts, whose functions these are.
class PackedProducts {
 public:
  using Storage = bf16;

  PackedProducts(WorkspaceCutter& cutter, std::int64_t seq, std::int64_t head_dim, bool backward)
      : seq_(seq),
        head_dim_(head_dim),
        key_panels_(round_up(seq, panel_lines) / panel_lines),
        dim_panels_(round_up(head_dim, panel_lines) / panel_lines),
        backward_(backward) {
    const auto take_tiles = [&](std::int64_t panels, std::int64_t steps) {
      return reinterpret_cast<bf16*>(cutter.take(panels * steps * step_values * size_of(DType::bf16)));
    };
    const auto take_floats = [&](std::int64_t count) {
      return reinterpret_cast<float*>(cutter.take(count * size_of(DType::f32)));
    };
    k_ = take_tiles(key_panels_, dim_panels_);
    q_columns_ = take_tiles(query_panels, dim_panels_);
    result_ = take_floats(padded_dim() * block_queries);
    if (!backward) {
      v_transposed_ = take_tiles(dim_panels_, key_panels_);
      weight_steps_ = key_panels_;
      weight_columns_ = take_tiles(query_panels, weight_steps_);
      return;
    }
    v_ = take_tiles(key_panels_, dim_panels_);
    k_transposed_ = take_tiles(dim_panels_, key_panels_);
    dy_columns_ = take_tiles(query_panels, dim_panels_);
    q_by_dim_ = take_tiles(dim_panels_, query_steps);
    dy_by_dim_ = take_tiles(dim_panels_, query_steps);
    weight_steps_ = chunk_keys / step_k;
    weight_columns_ = take_tiles(query_panels, weight_steps_);
    probability_rows_ = take_tiles(chunk_keys / panel_lines, query_steps);
    score_gradient_rows_ = take_tiles(chunk_keys / panel_lines, query_steps);
    dk_ = take_floats(key_panels_ * panel_lines * padded_dim());
    dv_ = take_floats(key_panels_ * panel_lines * padded_dim());
  }

  void load_keys(const bf16* k, std::int64_t k_stride, const bf16* v, std::int64_t v_stride) {
    using enum TileSide;
    pack_panels(by_d(k, k_stride, seq_), rows_of_a, key_panels_, dim_panels_, k_);
    if (backward_) {
      pack_panels(by_d(v, v_stride, seq_), rows_of_a, key_panels_, dim_panels_, v_);
      pack_panels(by_row(k, k_stride, seq_), rows_of_a, dim_panels_, key_panels_, k_transposed_);
    } else {
      pack_panels(by_row(v, v_stride, seq_), rows_of_a, dim_panels_, key_panels_, v_transposed_);
    }
  }
  void clear_key_gradients() {
    std::fill_n(dk_, key_panels_ * panel_lines * padded_dim(), 0.0F);
    std::fill_n(dv_, key_panels_ * panel_lines * padded_dim(), 0.0F);
  }
  void load_queries(const bf16* q, std::int64_t stride, std::int64_t num_rows) {
    pack_panels(by_d(q, stride, num_rows), TileSide::columns_of_b, query_panels, dim_panels_, q_columns_);
  }
  void load_query_rows(const bf16* q, std::int64_t q_stride, const bf16* dy, std::int64_t dy_stride,
                       std::int64_t num_rows) {
    using enum TileSide;
    pack_panels(by_d(dy, dy_stride, num_rows), columns_of_b, query_panels, dim_panels_, dy_columns_);
    pack_panels(by_row(q, q_stride, num_rows), columns_of_b, dim_panels_, query_steps, q_by_dim_);
    pack_panels(by_row(dy, dy_stride, num_rows), columns_of_b, dim_panels_, query_steps, dy_by_dim_);
  }

  void scores(std::int64_t begin, std::int64_t count, float* scores) const {
    multiply_panels(key_rows(k_, begin, count), whole(q_columns_, query_panels, dim_panels_), dim_panels_, scores,
                    block_queries, false);
  }
  void probability_gradients(std::int64_t begin, std::int64_t count, float* gradients) const {
    multiply_panels(key_rows(v_, begin, count), whole(dy_columns_, query_panels, dim_panels_), dim_panels_, gradients,
                    block_queries, false);
  }

  STRATA_LANES void put_probabilities(std::int64_t key, std::int64_t group, F32x16 first, F32x16 second) {
    put_columns(key, group, narrow_pair(first, second));
  }
  STRATA_LANES void put_chunk(std::int64_t key, std::int64_t group, F32x16 first, F32x16 second, F32x16 first_gradient,
                              F32x16 second_gradient) {
    put_rows(probability_rows_, key, group, narrow_pair(first, second));
    const NarrowPair gradient = narrow_pair(first_gradient, second_gradient);
    put_rows(score_gradient_rows_, key, group, gradient);
    put_columns(key, group, gradient);
  }

  void sum_values(std::int64_t num_keys) { sum_over_keys(v_transposed_, 0, num_keys, false); }
  void sum_gradients(std::int64_t begin, std::int64_t count) {
    const std::int64_t panels = count / panel_lines;
    const std::int64_t offset = begin * padded_dim();
    multiply_panels(whole(probability_rows_, panels, query_steps), whole(dy_by_dim_, dim_panels_, query_steps),
                    query_steps, dv_ + offset, padded_dim(), true);
    multiply_panels(whole(score_gradient_rows_, panels, query_steps), whole(q_by_dim_, dim_panels_, query_steps),
                    query_steps, dk_ + offset, padded_dim(), true);
    sum_over_keys(k_transposed_, begin, count, begin > 0);
  }

  const float* result() const { return result_; }
  const float* dk() const { return dk_; }
  const float* dv() const { return dv_; }
  std::int64_t padded_dim() const { return dim_panels_ * panel_lines; }

 private:
  static constexpr std::int64_t query_panels = block_queries / panel_lines;  // where queries are columns
  static constexpr std::int64_t query_steps = block_queries / step_k;        // where they are the inner dimension

  /// Rows of a head as the lines of a product over d.
  PlainLines by_d(const bf16* data, std::int64_t stride, std::int64_t num_rows) const {
    return {.data = data, .ld = stride, .order = LineOrder::k_contiguous, .num_lines = num_rows, .num_k = head_dim_};
  }
  /// The same memory in a product over rows: d are its lines.
  PlainLines by_row(const bf16* data, std::int64_t stride, std::int64_t num_rows) const {
    return {
        .data = data, .ld = stride, .order = LineOrder::lines_contiguous, .num_lines = head_dim_, .num_k = num_rows};
  }
  static PackedPanels whole(const bf16* data, std::int64_t panels, std::int64_t steps) {
    return {data, panels, steps * step_values};
  }
  PackedPanels key_rows(const bf16* data, std::int64_t begin, std::int64_t count) const {
    return whole(data + begin / panel_lines * dim_panels_ * step_values, count / panel_lines, dim_panels_);
  }
  /// result_ = or += rows[d, key] · weights[key, query]; `rows` holds all keys, the weights those of the call.
  void sum_over_keys(const bf16* rows, std::int64_t begin, std::int64_t count, bool add) {
    multiply_panels({rows + begin / step_k * step_values, dim_panels_, key_panels_ * step_values},
                    whole(weight_columns_, query_panels, weight_steps_), count / step_k, result_, block_queries, add);
  }
  /// Keys are the inner dimension, queries the columns.
  STRATA_LANES void put_columns(std::int64_t key, std::int64_t group, const NarrowPair& pair) {
    bf16* const at = weight_columns_ + (group / 2 * weight_steps_ + key / step_k) * step_values +
                     group % 2 * tile_values + key % step_k / 2 * 32;
    std::memcpy(static_cast<void*>(at), &pair.interleaved, sizeof pair.interleaved);
  }
  /// Keys are the rows, queries the inner dimension.
  STRATA_LANES static void put_rows(bf16* tiles, std::int64_t key, std::int64_t group, const NarrowPair& pair) {
    bf16* const at = tiles + (key / panel_lines * query_steps + group / 2) * step_values +
                     key % panel_lines / 16 * tile_values + key % 16 * 32 + group % 2 * 16;
    std::memcpy(static_cast<void*>(at), &pair.first, sizeof pair.first);
    std::memcpy(static_cast<void*>(at + 32), &pair.second, sizeof pair.second);
  }

  std::int64_t seq_;
  std::int64_t head_dim_;
  std::int64_t key_panels_;
  std::int64_t dim_panels_;
  bool backward_;
  std::int64_t weight_steps_ = 0;
  // Packed for the products in which the name's first word is the line: keys, d, or queries.
  bf16* k_ = nullptr;
  bf16* v_ = nullptr;
  bf16* k_transposed_ = nullptr;
  bf16* v_transposed_ = nullptr;
  bf16* q_columns_ = nullptr;
  bf16* dy_columns_ = nullptr;
  bf16* q_by_dim_ = nullptr;
  bf16* dy_by_dim_ = nullptr;
  bf16* weight_columns_ = nullptr;  // probabilities in forward, score gradients in backward
  bf16* probability_rows_ = nullptr;
  bf16* score_gradient_rows_ = nullptr;
  float* result_ = nullptr;  // [padded_dim, block_queries]
  float* dk_ = nullptr;      // [keys, padded_dim]
  float* dv_ = nullptr;
};

}  // namespace strata::cpu
