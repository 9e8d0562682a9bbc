/// @file
/// One (sample, head) is one piece of work for one thread, whose order of operations depends on seq and head_dim alone:
/// hence equal bits for any number of threads. In backward it is one (sample, key-value head), whose query heads add to
/// dk and dv in turn.
///
/// Forward, for a block of 64 queries: all scores sᵢⱼ = kⱼ·qᵢ that the mask leaves, their maximum, pᵢⱼ = exp(scale·(sᵢⱼ
/// − max)), y = Σ p v / Σ p. Backward, for a block of queries and a chunk of keys, with Dᵢ = Σ_d y·dy (equal to
/// Σⱼ p dp, dropout or not):
///   p = exp(scale·s − lse), dp = keep · v·dy / (1 − rate), ds = p (dp − D), dv += (keep p / (1 − rate)) dy, dq =
///   scale Σ ds k, dk = scale Σ ds q.
/// The constant factors scale and 1 / (1 − rate) of sums are applied once to the sum.

#include "exec/cpu/kernels/attention.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "exec/cpu/kernels/attention_block.hpp"
#include "exec/cpu/kernels/attention_packed.hpp"
#include "exec/cpu/kernels/attention_plain.hpp"
#include "exec/cpu/kernels/bf16_unit.hpp"
#include "exec/cpu/kernels/dropout_mask.hpp"
#include "exec/cpu/kernels/elementary_functions.hpp"

namespace strata::cpu {

namespace {

/// One block of queries of one head, as the loops over scores need it.
struct Block {
  std::int64_t first_query;
  std::int64_t num_queries;
  std::int64_t num_keys;     // that some query of the block sees
  std::int64_t padded_keys;  // num_keys, up to a multiple of key_multiple
  bool causal;
  float scale;
  const std::uint32_t* keep_bits;  // [keys / 32, block_queries]; null without dropout

  Block(const AttentionDims& dims, std::int64_t first, const std::uint32_t* bits)
      : first_query(first),
        num_queries(std::min(block_queries, dims.seq - first)),
        num_keys(dims.causal ? std::min(dims.seq, first + block_queries) : dims.seq),
        padded_keys(round_up(num_keys, key_multiple)),
        causal(dims.causal),
        scale(1.0F / std::sqrt(static_cast<float>(dims.head_dim))),
        keep_bits(dims.dropout_probability > 0.0F ? bits : nullptr) {}

  /// Keys before this one are seen by all sixteen queries of a group; rounded down to even, since keys are treated in
  /// pairs.
  std::int64_t all_see(std::int64_t group) const {
    return (causal ? std::min(num_keys, first_query + group * num_lanes + 1) : num_keys) / 2 * 2;
  }
  /// From this key on none does; rounded up to even.
  std::int64_t none_sees(std::int64_t group) const {
    return round_up(causal ? std::min(num_keys, first_query + (group + 1) * num_lanes) : num_keys, 2);
  }
};

/// @p value for the queries of the group that see the key, @p other for the rest.
STRATA_LANES F32x16 where_seen(const Block& block, std::int64_t group, std::int64_t key, F32x16 value, float other) {
  const U32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const std::int64_t first_lane = block.causal ? key - block.first_query - group * num_lanes : 0;
  const std::int64_t bound = key < block.num_keys ? std::clamp<std::int64_t>(first_lane, 0, num_lanes) : num_lanes;
  const auto least = static_cast<std::uint32_t>(bound);
  return by_registers([least](auto lanes, auto seen, auto unseen) { return lanes >= least ? seen : unseen; }, lane,
                      value, broadcast(other));
}

/// @p value for the queries whose dropout keeps the key, 0 for the rest.
STRATA_LANES F32x16 where_kept(U32x16 keep_bits, std::int64_t key, F32x16 value) {
  const std::uint32_t bit = 1U << static_cast<std::uint32_t>(key % 32);
  return by_registers([bit](auto bits, auto kept, auto zero) { return (bits & bit) != 0U ? kept : zero; }, keep_bits,
                      value, F32x16{});
}
STRATA_LANES U32x16 load_keep_bits(const Block& block, std::int64_t group, std::int64_t key) {
  U32x16 bits;
  std::memcpy(&bits, block.keep_bits + key / 32 * block_queries + group * num_lanes, sizeof bits);
  return bits;
}

/// The mask of a block's queries and the keys they may see. Queries beyond the sequence keep nothing.
/// @param first_index of the element (head, first query of the block, key 0)
void draw_keep_bits(const AttentionDims& dims, const Block& block, std::uint64_t first_index, RandomStream random,
                    std::uint32_t* bits) {
  if (block.keep_bits == nullptr) {
    return;
  }
  std::fill_n(bits, block.padded_keys / 32 * block_queries, 0U);
  for (std::int64_t query = 0; query < block.num_queries; ++query) {
    const std::uint64_t row = first_index + static_cast<std::uint64_t>(query * dims.seq);
    const std::int64_t seen = block.causal ? block.first_query + query + 1 : block.num_keys;
    dropout_keep_bits(random, row, seen, dims.dropout_probability, bits + query, block_queries);
  }
}

/// Probabilities times their row's sum, into the operand of sum_values, from scores [padded_keys, block_queries].
/// @param inverse_sum and @param log_sum_exp of each query of the block, out.
template <typename Products>
void softmax(const Block& block, const float* scores, Products& products, F32x16 (&inverse_sum)[query_groups],
             float* log_sum_exp) {
  for (std::int64_t group = 0; group < query_groups; ++group) {
    const auto score = [&](std::int64_t key) { return load(scores + key * block_queries + group * num_lanes); };
    const std::int64_t all = block.all_see(group);
    const std::int64_t end = block.none_sees(group);
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    F32x16 even_max = broadcast(lowest);
    F32x16 odd_max = even_max;
    for (std::int64_t key = 0; key < all; key += 2) {
      even_max = maximum(score(key), even_max);
      odd_max = maximum(score(key + 1), odd_max);
    }
    for (std::int64_t key = all; key < end; ++key) {
      even_max = maximum(where_seen(block, group, key, score(key), lowest), even_max);
    }
    const F32x16 offset = maximum(even_max, odd_max) * block.scale;
    F32x16 even_sum{};
    F32x16 odd_sum{};
    U32x16 bits{};
    const auto put_pair = [&](std::int64_t key, F32x16 first, F32x16 second) {
      even_sum += first;
      odd_sum += second;
      if (block.keep_bits != nullptr) {
        bits = load_keep_bits(block, group, key);
        first = where_kept(bits, key, first);
        second = where_kept(bits, key + 1, second);
      }
      products.put_probabilities(key, group, first, second);
    };
    const auto exponential_of = [&](std::int64_t key) { return exponential(score(key) * block.scale - offset); };
    for (std::int64_t key = 0; key < all; key += 2) {
      put_pair(key, exponential_of(key), exponential_of(key + 1));
    }
    for (std::int64_t key = all; key < end; key += 2) {
      put_pair(key, where_seen(block, group, key, exponential_of(key), 0.0F),
               where_seen(block, group, key + 1, exponential_of(key + 1), 0.0F));
    }
    for (std::int64_t key = end; key < block.padded_keys; key += 2) {
      products.put_probabilities(key, group, F32x16{}, F32x16{});
    }
    const F32x16 sum = even_sum + odd_sum;
    inverse_sum[group] = 1.0F / sum;
    for (std::int64_t lane = 0; lane < num_lanes; ++lane) {
      log_sum_exp[group * num_lanes + lane] = offset[lane] + std::log(sum[lane]);
    }
  }
}

/// Probabilities (times keep) and score gradients (over scale) of keys begin … begin + count - 1, into the operands of
/// sum_gradients.
/// @param scores, @param gradients [count, block_queries]
/// @param log_sum_exp, @param weighted_sums (D) [block_queries]
template <typename Products>
void differentiate(const Block& block, std::int64_t begin, std::int64_t count, const float* scores,
                   const float* gradients, const float* log_sum_exp, const float* weighted_sums, float keep_scale,
                   Products& products) {
  for (std::int64_t group = 0; group < query_groups; ++group) {
    const F32x16 offset = load(log_sum_exp + group * num_lanes);
    const F32x16 weighted_sum = load(weighted_sums + group * num_lanes);
    const auto at = [&](const float* rows, std::int64_t key) {
      return load(rows + key * block_queries + group * num_lanes);
    };
    const auto probability = [&](std::int64_t key) { return exponential(at(scores, key) * block.scale - offset); };
    const auto put_pair = [&](std::int64_t key, F32x16 first, F32x16 second) {
      F32x16 first_gradient = at(gradients, key);
      F32x16 second_gradient = at(gradients, key + 1);
      F32x16 first_kept = first;
      F32x16 second_kept = second;
      if (block.keep_bits != nullptr) {
        const U32x16 bits = load_keep_bits(block, group, begin + key);
        first_kept = where_kept(bits, key, first);
        second_kept = where_kept(bits, key + 1, second);
        first_gradient = where_kept(bits, key, first_gradient * keep_scale);
        second_gradient = where_kept(bits, key + 1, second_gradient * keep_scale);
      }
      products.put_chunk(key, group, first_kept, second_kept, first * (first_gradient - weighted_sum),
                         second * (second_gradient - weighted_sum));
    };
    const std::int64_t all = std::clamp<std::int64_t>(block.all_see(group) - begin, 0, count);
    const std::int64_t end = std::clamp<std::int64_t>(block.none_sees(group) - begin, 0, count);
    for (std::int64_t key = 0; key < all; key += 2) {
      put_pair(key, probability(key), probability(key + 1));
    }
    for (std::int64_t key = all; key < end; key += 2) {
      put_pair(key, where_seen(block, group, begin + key, probability(key), 0.0F),
               where_seen(block, group, begin + key + 1, probability(key + 1), 0.0F));
    }
    for (std::int64_t key = end; key < count; key += 2) {
      products.put_chunk(key, group, F32x16{}, F32x16{}, F32x16{}, F32x16{});
    }
  }
}

/// D: Σ_d y · dy of each query of a block; 0 beyond num_rows.
template <typename T>
void weighted_sums(const T* y, std::int64_t y_stride, const T* dy, std::int64_t dy_stride, std::int64_t num_rows,
                   std::int64_t head_dim, float* sums) {
  std::fill_n(sums, block_queries, 0.0F);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    F32x16 sum{};
    for_lanes(head_dim, [&](std::int64_t d, auto lanes) {
      sum += load(y + row * y_stride + d, lanes) * load(dy + row * dy_stride + d, lanes);
    });
    sums[row] = sum_lanes(sum);
  }
}

/// A tensor's rows as T, at one head.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t stride;

  T* row(std::int64_t position) const { return data + position * stride; }
};
template <typename T>
HeadRows<const T> head_rows(const AttentionDims& dims, ConstTokenRows rows, std::int64_t sample, std::int64_t head) {
  return {static_cast<const T*>(rows.data) + sample * dims.seq * rows.row_stride + head * dims.head_dim,
          rows.row_stride};
}
template <typename T>
HeadRows<T> head_rows(const AttentionDims& dims, TokenRows rows, std::int64_t sample, std::int64_t head) {
  return {static_cast<T*>(rows.data) + sample * dims.seq * rows.row_stride + head * dims.head_dim, rows.row_stride};
}

/// Index of the mask's element (sample, head, query, key 0); head is a query head of this call.
std::uint64_t mask_index(const AttentionDims& dims, std::int64_t sample, std::int64_t head, std::int64_t query) {
  const std::int64_t total = dims.total_heads > 0 ? dims.total_heads : dims.num_heads;
  const auto row = static_cast<std::uint64_t>((dims.first_sample + sample) * total + dims.first_head + head);
  return (row * static_cast<std::uint64_t>(dims.seq) + static_cast<std::uint64_t>(query)) *
         static_cast<std::uint64_t>(dims.seq);
}

/// A thread's memory in forward. One type cuts it and measures it.
template <typename Products>
struct ForwardScratch {
  ForwardScratch(WorkspaceCutter& cutter, const AttentionDims& dims)
      : products(cutter, dims.seq, dims.head_dim, false),
        scores(reinterpret_cast<float*>(cutter.take(round_up(dims.seq, key_multiple) * block_queries * 4))),
        keep_bits(reinterpret_cast<std::uint32_t*>(cutter.take(
            dims.dropout_probability > 0.0F ? round_up(dims.seq, key_multiple) / 32 * block_queries * 4 : 0))) {}
  Products products;
  float* scores;
  std::uint32_t* keep_bits;
};

/// A thread's memory in backward.
template <typename Products>
struct BackwardScratch {
  BackwardScratch(WorkspaceCutter& cutter, const AttentionDims& dims)
      : products(cutter, dims.seq, dims.head_dim, true),
        scores(reinterpret_cast<float*>(cutter.take(chunk_keys * block_queries * 4))),
        gradients(reinterpret_cast<float*>(cutter.take(chunk_keys * block_queries * 4))),
        keep_bits(reinterpret_cast<std::uint32_t*>(cutter.take(
            dims.dropout_probability > 0.0F ? round_up(dims.seq, key_multiple) / 32 * block_queries * 4 : 0))) {}
  Products products;
  float* scores;
  float* gradients;
  std::uint32_t* keep_bits;
};

template <typename Products>
void forward_head(const AttentionDims& dims, std::int64_t sample, std::int64_t head,
                  const AttentionForwardOperands& operands, RandomStream random, ForwardScratch<Products>& scratch) {
  using T = typename Products::Storage;
  const std::int64_t kv_head = head / (dims.num_heads / dims.num_kv_heads);
  const auto queries = head_rows<T>(dims, operands.q, sample, head);
  const auto keys = head_rows<T>(dims, operands.k, sample, kv_head);
  const auto values = head_rows<T>(dims, operands.v, sample, kv_head);
  const auto results = head_rows<T>(dims, operands.y, sample, head);
  Products& products = scratch.products;
  products.load_keys(keys.data, keys.stride, values.data, values.stride);
  for (std::int64_t first = 0; first < dims.seq; first += block_queries) {
    const Block block(dims, first, scratch.keep_bits);
    draw_keep_bits(dims, block, mask_index(dims, sample, head, first), random, scratch.keep_bits);
    products.load_queries(queries.row(first), queries.stride, block.num_queries);
    products.scores(0, block.padded_keys, scratch.scores);
    F32x16 factor[query_groups];
    float statistics[block_queries];
    softmax(block, scratch.scores, products, factor, statistics);
    std::copy_n(statistics, block.num_queries,
                operands.log_sum_exp + (sample * dims.num_heads + head) * dims.seq + first);
    products.sum_values(block.padded_keys);
    if (block.keep_bits != nullptr) {
      for (F32x16& value : factor) {
        value *= dropout_scale(dims.dropout_probability);
      }
    }
    store_transposed(products.result(), factor, block.num_queries, dims.head_dim, results.row(first), results.stride);
  }
}

/// dq of one query head; adds its part to dk and dv in the scratch.
template <typename Products>
void backward_head(const AttentionDims& dims, std::int64_t sample, std::int64_t head,
                   const AttentionBackwardOperands& operands, RandomStream random, BackwardScratch<Products>& scratch) {
  using T = typename Products::Storage;
  const auto queries = head_rows<T>(dims, operands.q, sample, head);
  const auto results = head_rows<T>(dims, operands.y, sample, head);
  const auto d_results = head_rows<T>(dims, operands.dy, sample, head);
  const auto d_queries = head_rows<T>(dims, operands.dq, sample, head);
  const float* const statistics = operands.log_sum_exp + (sample * dims.num_heads + head) * dims.seq;
  const float keep_scale = dropout_scale(dims.dropout_probability);
  Products& products = scratch.products;
  for (std::int64_t first = 0; first < dims.seq; first += block_queries) {
    const Block block(dims, first, scratch.keep_bits);
    draw_keep_bits(dims, block, mask_index(dims, sample, head, first), random, scratch.keep_bits);
    products.load_queries(queries.row(first), queries.stride, block.num_queries);
    products.load_query_rows(queries.row(first), queries.stride, d_results.row(first), d_results.stride,
                             block.num_queries);
    float log_sum_exp[block_queries] = {};
    std::copy_n(statistics + first, block.num_queries, log_sum_exp);
    float sums[block_queries];
    weighted_sums(results.row(first), results.stride, d_results.row(first), d_results.stride, block.num_queries,
                  dims.head_dim, sums);
    for (std::int64_t begin = 0; begin < block.padded_keys; begin += chunk_keys) {
      const std::int64_t count = std::min(chunk_keys, block.padded_keys - begin);
      products.scores(begin, count, scratch.scores);
      products.probability_gradients(begin, count, scratch.gradients);
      differentiate(block, begin, count, scratch.scores, scratch.gradients, log_sum_exp, sums, keep_scale, products);
      products.sum_gradients(begin, count);
    }
    F32x16 factor[query_groups];
    std::fill_n(factor, query_groups, broadcast(block.scale));
    store_transposed(products.result(), factor, block.num_queries, dims.head_dim, d_queries.row(first),
                     d_queries.stride);
  }
}

template <typename Products>
void backward_kv_head(const AttentionDims& dims, std::int64_t sample, std::int64_t kv_head,
                      const AttentionBackwardOperands& operands, RandomStream random,
                      BackwardScratch<Products>& scratch) {
  using T = typename Products::Storage;
  const auto keys = head_rows<T>(dims, operands.k, sample, kv_head);
  const auto values = head_rows<T>(dims, operands.v, sample, kv_head);
  Products& products = scratch.products;
  products.load_keys(keys.data, keys.stride, values.data, values.stride);
  products.clear_key_gradients();
  const std::int64_t group = dims.num_heads / dims.num_kv_heads;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    backward_head(dims, sample, head, operands, random, scratch);
  }
  const auto d_keys = head_rows<T>(dims, operands.dk, sample, kv_head);
  const auto d_values = head_rows<T>(dims, operands.dv, sample, kv_head);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dims.head_dim));
  store_rows(products.dk(), products.padded_dim(), scale, dims.seq, dims.head_dim, d_keys.data, d_keys.stride);
  store_rows(products.dv(), products.padded_dim(), dropout_scale(dims.dropout_probability), dims.seq, dims.head_dim,
             d_values.data, d_values.stride);
}

/// Calls body.operator()<Products>() with the products for this type on this processor.
template <typename Body>
auto with_products(const AttentionDims& dims, Body&& body) {
  if (dims.dtype == DType::f32) {
    return body.template operator()<PlainProducts<float>>();
  }
  return bf16_unit() == Bf16Unit::none ? body.template operator()<PlainProducts<bf16>>()
                                       : body.template operator()<PackedProducts>();
}

template <typename Scratch>
std::int64_t bytes_per_thread(const AttentionDims& dims) {
  WorkspaceCutter cutter;
  const Scratch scratch(cutter, dims);
  return cutter.taken_bytes();
}

/// Runs body(piece, scratch) for every piece of work, each thread with a scratch of its own.
template <typename Scratch, typename Body>
void for_pieces(const AttentionDims& dims, std::int64_t num_pieces, std::span<std::byte> workspace, Body&& body) {
  const std::int64_t thread_bytes = bytes_per_thread<Scratch>(dims);
  const int num_threads = kernel_threads();
  WorkspaceCutter cutter(workspace);
  std::byte* const start = cutter.take(thread_bytes * num_threads);
#pragma omp parallel num_threads(num_threads)
  {
    WorkspaceCutter own({start + omp_get_thread_num() * thread_bytes, static_cast<std::size_t>(thread_bytes)});
    Scratch scratch(own, dims);
#pragma omp for schedule(static)
    for (std::int64_t piece = 0; piece < num_pieces; ++piece) {
      body(piece, scratch);
    }
  }
}

void check_dims(const AttentionDims& dims) {
  STRATA_INVARIANT(dims.dtype == DType::f32 || dims.dtype == DType::bf16,
                   fmt::format("attention in f32 or bf16, not {}", to_string(dims.dtype)));
  STRATA_INVARIANT(dims.batch > 0 && dims.seq > 0 && dims.head_dim > 0 && dims.num_heads > 0 && dims.num_kv_heads > 0,
                   fmt::format("attention of batch {}, seq {}, {} heads, {} key-value heads of {}", dims.batch,
                               dims.seq, dims.num_heads, dims.num_kv_heads, dims.head_dim));
  STRATA_INVARIANT(dims.num_heads % dims.num_kv_heads == 0,
                   fmt::format("{} query heads on {} key-value heads", dims.num_heads, dims.num_kv_heads));
  STRATA_INVARIANT(dims.dropout_probability >= 0.0F && dims.dropout_probability < 1.0F,
                   fmt::format("attention dropout {} is not in [0, 1)", dims.dropout_probability));
  STRATA_INVARIANT(dims.first_sample >= 0 && dims.first_head >= 0 &&
                       (dims.total_heads == 0 || dims.first_head + dims.num_heads <= dims.total_heads),
                   fmt::format("heads {} to {} of {}, from sample {}", dims.first_head,
                               dims.first_head + dims.num_heads, dims.total_heads, dims.first_sample));
}

void check_stride(const AttentionDims& dims, std::int64_t row_stride, std::int64_t num_heads) {
  STRATA_INVARIANT(
      row_stride >= num_heads * dims.head_dim,
      fmt::format("rows of {} heads of {} elements with a stride of {}", num_heads, dims.head_dim, row_stride));
}

}  // namespace

std::int64_t attention_forward_workspace_bytes(const AttentionDims& dims) {
  check_dims(dims);
  return kernel_threads() *
         with_products(dims, [&]<typename Products>() { return bytes_per_thread<ForwardScratch<Products>>(dims); });
}

std::int64_t attention_backward_workspace_bytes(const AttentionDims& dims) {
  check_dims(dims);
  return kernel_threads() *
         with_products(dims, [&]<typename Products>() { return bytes_per_thread<BackwardScratch<Products>>(dims); });
}

void attention_forward(const AttentionDims& dims, const AttentionForwardOperands& operands, RandomStream random,
                       std::span<std::byte> workspace) {
  check_dims(dims);
  check_stride(dims, operands.q.row_stride, dims.num_heads);
  check_stride(dims, operands.k.row_stride, dims.num_kv_heads);
  check_stride(dims, operands.v.row_stride, dims.num_kv_heads);
  check_stride(dims, operands.y.row_stride, dims.num_heads);
  with_products(dims, [&]<typename Products>() {
    for_pieces<ForwardScratch<Products>>(
        dims, dims.batch * dims.num_heads, workspace, [&](std::int64_t piece, ForwardScratch<Products>& scratch) {
          forward_head(dims, piece / dims.num_heads, piece % dims.num_heads, operands, random, scratch);
        });
  });
}

void attention_backward(const AttentionDims& dims, const AttentionBackwardOperands& operands, RandomStream random,
                        std::span<std::byte> workspace) {
  check_dims(dims);
  for (const std::int64_t stride :
       {operands.q.row_stride, operands.y.row_stride, operands.dy.row_stride, operands.dq.row_stride}) {
    check_stride(dims, stride, dims.num_heads);
  }
  for (const std::int64_t stride :
       {operands.k.row_stride, operands.v.row_stride, operands.dk.row_stride, operands.dv.row_stride}) {
    check_stride(dims, stride, dims.num_kv_heads);
  }
  with_products(dims, [&]<typename Products>() {
    for_pieces<BackwardScratch<Products>>(
        dims, dims.batch * dims.num_kv_heads, workspace, [&](std::int64_t piece, BackwardScratch<Products>& scratch) {
          backward_kv_head(dims, piece / dims.num_kv_heads, piece % dims.num_kv_heads, operands, random, scratch);
        });
  });
}

}  // namespace strata::cpu
