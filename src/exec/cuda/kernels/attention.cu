/// @file
/// Attention in tiles of 32 queries and 32 keys in shared memory: forward and the gradient of q by a block of threads a
/// tile of queries, the gradients of k and v by one a tile of keys, so that every sum has one owner and one order.
/// Source of the formulas: Dao, "FlashAttention-2", 2023. The tensor cores are not used: this is the kernel that takes
/// every dtype and shape, not the fast one.

#include <cmath>
#include <string>

#include "exec/cuda/kernels/attention.hpp"
#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/random.cuh"

namespace strata::cuda {
namespace {

constexpr int tile = 32;  // queries, and keys
constexpr int threads = 256;
constexpr int max_head_dim = 256;

/// Where the heads of a sample lie: consecutive rows are row_stride elements apart.
template <typename T>
struct Head {
  T* data;
  std::int64_t row_stride;
};

/// What a kernel knows of its place.
struct Place {
  std::int64_t sample;
  std::int64_t head;
  std::int64_t kv_head;
};
__device__ Place place_of(const AttentionDims& d, std::int64_t sample_and_head) {
  const std::int64_t head = sample_and_head % d.num_heads;
  return {sample_and_head / d.num_heads, head, head / (d.num_heads / d.num_kv_heads)};
}
__device__ std::int64_t fused_width(const AttentionDims& d) { return (d.num_heads + 2 * d.num_kv_heads) * d.head_dim; }
/// Head number @p head of the fused tensor: queries, then keys, then values.
template <typename T>
__device__ Head<T> fused_head(const AttentionDims& d, T* qkv, std::int64_t sample, std::int64_t head) {
  return {qkv + sample * d.seq * fused_width(d) + head * d.head_dim, fused_width(d)};
}
template <typename T>
__device__ Head<T> plain_head(const AttentionDims& d, T* y, const Place& at) {
  return {y + (at.sample * d.seq * d.num_heads + at.head) * d.head_dim, d.num_heads * d.head_dim};
}

/// Rows first … of a head as f32, zeros beyond the sequence. A row takes head_dim + 1 floats, so that threads that read
/// one column of different rows use different banks.
template <typename T>
__device__ void load_tile(const AttentionDims& d, const Head<T>& from, std::int64_t first, float* to) {
  const int dim = static_cast<int>(d.head_dim);
  for (int i = static_cast<int>(threadIdx.x); i < tile * dim; i += threads) {
    const int row = i / dim;
    const int column = i % dim;
    to[row * (dim + 1) + column] =
        first + row < d.seq ? to_float(from.data[(first + row) * from.row_stride + column]) : 0.0F;
  }
}

__device__ float dot(const float* a, const float* b, int n) {
  float sum = 0.0F;
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Factor of the probability of query i and key j: 0, or 1/(1 - p).
__device__ float dropout_factor(const AttentionDims& d, const Place& at, const RandomStream* random, float kept,
                                std::int64_t i, std::int64_t j) {
  if (d.dropout_probability == 0.0F) return 1.0F;
  const std::int64_t heads = d.total_heads == 0 ? d.num_heads : d.total_heads;
  const std::int64_t index = (((d.first_sample + at.sample) * heads + d.first_head + at.head) * d.seq + i) * d.seq + j;
  return StreamWords(*random).uniform(static_cast<std::uint64_t>(index)) < d.dropout_probability ? 0.0F : kept;
}

__device__ bool sees(const AttentionDims& d, std::int64_t i, std::int64_t j) {
  return i < d.seq && j < d.seq && (!d.causal || j <= i);
}

/// blockIdx.x: tile of queries; blockIdx.y: sample · num_heads + head.
template <typename T>
__global__ void forward_kernel(AttentionDims d, const T* qkv, T* y, float* log_sum_exp, float scale, float kept,
                               const RandomStream* random) {
  extern __shared__ float memory[];
  const int dim = static_cast<int>(d.head_dim);
  const int row = dim + 1;
  float* const q = memory;
  float* const k = q + tile * row;
  float* const v = k + tile * row;
  float* const out = v + tile * row;
  float* const scores = out + tile * row;  // [tile, tile + 1]
  float* const highest = scores + tile * (tile + 1);
  float* const sum = highest + tile;
  float* const rescale = sum + tile;
  const Place at = place_of(d, blockIdx.y);
  const std::int64_t first_query = std::int64_t{blockIdx.x} * tile;
  const int thread = static_cast<int>(threadIdx.x);
  load_tile(d, fused_head(d, qkv, at.sample, at.head), first_query, q);
  for (int i = thread; i < tile * row; i += threads) out[i] = 0.0F;
  if (thread < tile) {
    highest[thread] = -INFINITY;
    sum[thread] = 0.0F;
  }
  const std::int64_t end_key = d.causal ? min(d.seq, first_query + tile) : d.seq;
  for (std::int64_t first_key = 0; first_key < end_key; first_key += tile) {
    __syncthreads();
    load_tile(d, fused_head(d, qkv, at.sample, d.num_heads + at.kv_head), first_key, k);
    load_tile(d, fused_head(d, qkv, at.sample, d.num_heads + d.num_kv_heads + at.kv_head), first_key, v);
    __syncthreads();
    for (int e = thread; e < tile * tile; e += threads) {
      const int i = e / tile;
      const int j = e % tile;
      scores[i * (tile + 1) + j] =
          sees(d, first_query + i, first_key + j) ? scale * dot(q + i * row, k + j * row, dim) : -INFINITY;
    }
    __syncthreads();
    if (thread < tile) {  // a thread a query: the running maximum and sum
      float* const line = scores + thread * (tile + 1);
      float top = highest[thread];
      for (int j = 0; j < tile; ++j) top = fmaxf(top, line[j]);
      // A query beyond the sequence sees nothing: all of its values stay 0.
      const float shift = top == -INFINITY ? 0.0F : top;
      const float factor = expf(highest[thread] - shift);
      float total = sum[thread] * factor;
      for (int j = 0; j < tile; ++j) {
        const float p = expf(line[j] - shift);
        total += p;  // the softmax's sum is over all keys, dropped or not
        line[j] = p;
      }
      highest[thread] = top;
      sum[thread] = total;
      rescale[thread] = factor;
    }
    __syncthreads();
    if (d.dropout_probability != 0.0F) {
      for (int e = thread; e < tile * tile; e += threads) {
        const int i = e / tile;
        const int j = e % tile;
        if (sees(d, first_query + i, first_key + j)) {
          scores[i * (tile + 1) + j] *= dropout_factor(d, at, random, kept, first_query + i, first_key + j);
        }
      }
      __syncthreads();
    }
    for (int e = thread; e < tile * dim; e += threads) {
      const int i = e / dim;
      const int c = e % dim;
      float value = out[i * row + c] * rescale[i];
      for (int j = 0; j < tile; ++j) value += scores[i * (tile + 1) + j] * v[j * row + c];
      out[i * row + c] = value;
    }
  }
  __syncthreads();
  const Head<T> to = plain_head(d, y, at);
  for (int e = thread; e < tile * dim; e += threads) {
    const int i = e / dim;
    const int c = e % dim;
    if (first_query + i < d.seq) {
      to.data[(first_query + i) * to.row_stride + c] = from_float<T>(out[i * row + c] / sum[i]);
    }
  }
  if (thread < tile && first_query + thread < d.seq) {
    log_sum_exp[std::int64_t{blockIdx.y} * d.seq + first_query + thread] = highest[thread] + logf(sum[thread]);
  }
}

/// sums[sample, head, i] = Σ_c dy · y of query i; a warp a query.
template <typename T>
__global__ void sum_output_products(AttentionDims d, const T* dy, const T* y, float* sums) {
  const std::int64_t num_queries = d.batch * d.seq * d.num_heads;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (warp >= num_queries) return;  // a whole warp
  const std::int64_t head = warp % d.num_heads;
  const std::int64_t token = warp / d.num_heads;  // sample · seq + i
  float sum = 0.0F;
  for (std::int64_t c = threadIdx.x % 32; c < d.head_dim; c += 32) {
    sum += to_float(dy[warp * d.head_dim + c]) * to_float(y[warp * d.head_dim + c]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[(token / d.seq * d.num_heads + head) * d.seq + token % d.seq] = sum;
}

/// Probability of query i and key j with its dropout, and the gradient of their score, from tiles in shared memory.
struct Pair {
  float dropped;   ///< probability · dropout factor
  float gradient;  ///< of the score before scaling by 1/√head_dim
};
__device__ Pair pair_of(const AttentionDims& d, const Place& at, const RandomStream* random, float kept, float scale,
                        const float* q, const float* k, const float* v, const float* dy, std::int64_t i, std::int64_t j,
                        float log_sum_exp, float output_product) {
  if (!sees(d, i, j)) return {0.0F, 0.0F};
  const int dim = static_cast<int>(d.head_dim);
  const float probability = expf(scale * dot(q, k, dim) - log_sum_exp);
  const float factor = dropout_factor(d, at, random, kept, i, j);
  return {probability * factor, probability * (factor * dot(dy, v, dim) - output_product)};
}

/// dq; blocks as in forward_kernel.
template <typename T>
__global__ void query_gradient_kernel(AttentionDims d, const T* dy, const T* qkv, const float* log_sum_exp,
                                      const float* output_products, T* dqkv, float scale, float kept,
                                      const RandomStream* random) {
  extern __shared__ float memory[];
  const int dim = static_cast<int>(d.head_dim);
  const int row = dim + 1;
  float* const q = memory;
  float* const d_out = q + tile * row;
  float* const k = d_out + tile * row;
  float* const v = k + tile * row;
  float* const dq = v + tile * row;
  float* const gradients = dq + tile * row;  // [tile, tile + 1]
  const Place at = place_of(d, blockIdx.y);
  const std::int64_t first_query = std::int64_t{blockIdx.x} * tile;
  const std::int64_t statistics = std::int64_t{blockIdx.y} * d.seq;
  const int thread = static_cast<int>(threadIdx.x);
  load_tile(d, fused_head(d, qkv, at.sample, at.head), first_query, q);
  load_tile(d, plain_head(d, dy, at), first_query, d_out);
  for (int i = thread; i < tile * row; i += threads) dq[i] = 0.0F;
  const std::int64_t end_key = d.causal ? min(d.seq, first_query + tile) : d.seq;
  for (std::int64_t first_key = 0; first_key < end_key; first_key += tile) {
    __syncthreads();
    load_tile(d, fused_head(d, qkv, at.sample, d.num_heads + at.kv_head), first_key, k);
    load_tile(d, fused_head(d, qkv, at.sample, d.num_heads + d.num_kv_heads + at.kv_head), first_key, v);
    __syncthreads();
    for (int e = thread; e < tile * tile; e += threads) {
      const int i = e / tile;
      const int j = e % tile;
      const std::int64_t query = min(first_query + i, d.seq - 1);  // beyond the sequence: read something, use nothing
      gradients[i * (tile + 1) + j] =
          pair_of(d, at, random, kept, scale, q + i * row, k + j * row, v + j * row, d_out + i * row, first_query + i,
                  first_key + j, log_sum_exp[statistics + query], output_products[statistics + query])
              .gradient;
    }
    __syncthreads();
    for (int e = thread; e < tile * dim; e += threads) {
      const int i = e / dim;
      const int c = e % dim;
      float sum = 0.0F;
      for (int j = 0; j < tile; ++j) sum += gradients[i * (tile + 1) + j] * k[j * row + c];
      dq[i * row + c] += sum;
    }
  }
  __syncthreads();
  const Head<T> to = fused_head(d, dqkv, at.sample, at.head);
  for (int e = thread; e < tile * dim; e += threads) {
    const int i = e / dim;
    const int c = e % dim;
    if (first_query + i < d.seq) {
      to.data[(first_query + i) * to.row_stride + c] = from_float<T>(scale * dq[i * row + c]);
    }
  }
}

/// dk and dv; blockIdx.x: tile of keys; blockIdx.y: sample · num_kv_heads + key-value head.
template <typename T>
__global__ void key_gradient_kernel(AttentionDims d, const T* dy, const T* qkv, const float* log_sum_exp,
                                    const float* output_products, T* dqkv, float scale, float kept,
                                    const RandomStream* random) {
  extern __shared__ float memory[];
  const int dim = static_cast<int>(d.head_dim);
  const int row = dim + 1;
  float* const q = memory;
  float* const d_out = q + tile * row;
  float* const k = d_out + tile * row;
  float* const v = k + tile * row;
  float* const dk = v + tile * row;
  float* const dv = dk + tile * row;
  float* const dropped = dv + tile * row;  // [tile, tile + 1], as gradients
  float* const gradients = dropped + tile * (tile + 1);
  const std::int64_t sample = blockIdx.y / d.num_kv_heads;
  const std::int64_t kv_head = blockIdx.y % d.num_kv_heads;
  const std::int64_t heads_a_kv_head = d.num_heads / d.num_kv_heads;
  const std::int64_t first_key = std::int64_t{blockIdx.x} * tile;
  const int thread = static_cast<int>(threadIdx.x);
  load_tile(d, fused_head(d, qkv, sample, d.num_heads + kv_head), first_key, k);
  load_tile(d, fused_head(d, qkv, sample, d.num_heads + d.num_kv_heads + kv_head), first_key, v);
  for (int i = thread; i < tile * row; i += threads) {
    dk[i] = 0.0F;
    dv[i] = 0.0F;
  }
  for (std::int64_t of_group = 0; of_group < heads_a_kv_head; ++of_group) {
    const Place at{sample, kv_head * heads_a_kv_head + of_group, kv_head};
    const std::int64_t statistics = (sample * d.num_heads + at.head) * d.seq;
    for (std::int64_t first_query = d.causal ? first_key : 0; first_query < d.seq; first_query += tile) {
      __syncthreads();
      load_tile(d, fused_head(d, qkv, sample, at.head), first_query, q);
      load_tile(d, plain_head(d, dy, at), first_query, d_out);
      __syncthreads();
      for (int e = thread; e < tile * tile; e += threads) {
        const int i = e / tile;
        const int j = e % tile;
        const std::int64_t query = min(first_query + i, d.seq - 1);
        const Pair pair =
            pair_of(d, at, random, kept, scale, q + i * row, k + j * row, v + j * row, d_out + i * row, first_query + i,
                    first_key + j, log_sum_exp[statistics + query], output_products[statistics + query]);
        dropped[i * (tile + 1) + j] = pair.dropped;
        gradients[i * (tile + 1) + j] = pair.gradient;
      }
      __syncthreads();
      for (int e = thread; e < tile * dim; e += threads) {
        const int j = e / dim;
        const int c = e % dim;
        float key_sum = 0.0F;
        float value_sum = 0.0F;
        for (int i = 0; i < tile; ++i) {
          key_sum += gradients[i * (tile + 1) + j] * q[i * row + c];
          value_sum += dropped[i * (tile + 1) + j] * d_out[i * row + c];
        }
        dk[j * row + c] += key_sum;
        dv[j * row + c] += value_sum;
      }
    }
  }
  __syncthreads();
  const Head<T> to_k = fused_head(d, dqkv, sample, d.num_heads + kv_head);
  const Head<T> to_v = fused_head(d, dqkv, sample, d.num_heads + d.num_kv_heads + kv_head);
  for (int e = thread; e < tile * dim; e += threads) {
    const int j = e / dim;
    const int c = e % dim;
    if (first_key + j < d.seq) {
      to_k.data[(first_key + j) * to_k.row_stride + c] = from_float<T>(scale * dk[j * row + c]);
      to_v.data[(first_key + j) * to_v.row_stride + c] = from_float<T>(dv[j * row + c]);
    }
  }
}

void check_dims(const AttentionDims& d) {
  if (d.head_dim < 1 || d.head_dim > max_head_dim) {
    throw Unsupported("attention with heads of " + std::to_string(d.head_dim) +
                      " elements: the CUDA kernel takes up to " + std::to_string(max_head_dim));
  }
  STRATA_INVARIANT(d.num_kv_heads > 0 && d.num_heads % d.num_kv_heads == 0, "key-value heads divide the query heads");
  if (d.batch * d.num_heads > 65535) {  // the second dim of a grid
    throw Unsupported("attention of " + std::to_string(d.batch * d.num_heads) +
                      " samples x heads in one call: the CUDA kernel takes up to 65535");
  }
  STRATA_INVARIANT(d.dropout_probability >= 0.0F && d.dropout_probability < 1.0F, "a probability in [0, 1)");
}

/// Bytes of @p num_tiles tiles of rows and @p num_squares of scores, and @p num_lines values a query.
std::size_t shared_bytes(const AttentionDims& d, int num_tiles, int num_squares, int num_lines) {
  return sizeof(float) * static_cast<std::size_t>(num_tiles * tile * (static_cast<int>(d.head_dim) + 1) +
                                                  num_squares * tile * (tile + 1) + num_lines * tile);
}

float score_scale(const AttentionDims& d) { return 1.0F / std::sqrt(static_cast<float>(d.head_dim)); }
float kept_factor(const AttentionDims& d) { return 1.0F / (1.0F - d.dropout_probability); }
unsigned num_tiles(const AttentionDims& d) { return static_cast<unsigned>((d.seq + tile - 1) / tile); }

}  // namespace

void attention_forward(const AttentionDims& d, const void* qkv, void* y, float* log_sum_exp, const RandomStream* random,
                       cudaStream_t stream) {
  check_dims(d);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const std::size_t bytes = shared_bytes(d, 4, 1, 3);
    allow_shared_memory(forward_kernel<T>, bytes, "attention");
    const dim3 grid(num_tiles(d), static_cast<unsigned>(d.batch * d.num_heads));
    forward_kernel<T><<<grid, threads, bytes, stream>>>(d, static_cast<const T*>(qkv), static_cast<T*>(y), log_sum_exp,
                                                        score_scale(d), kept_factor(d), random);
  });
  check_launch("attention_forward");
}

void attention_backward(const AttentionDims& d, const AttentionBackwardOperands& operands, const RandomStream* random,
                        float* workspace, cudaStream_t stream) {
  check_dims(d);
  STRATA_INVARIANT(operands.dqkv != operands.qkv && operands.dqkv != operands.dy && operands.dqkv != operands.y,
                   "attention's gradient stands in memory of its own");
  const float* const log_sum_exp = operands.log_sum_exp;
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const auto* d_out = static_cast<const T*>(operands.dy);
    const auto* in = static_cast<const T*>(operands.qkv);
    auto* gradient = static_cast<T*>(operands.dqkv);
    const std::int64_t warps = d.batch * d.seq * d.num_heads;
    sum_output_products<T><<<static_cast<unsigned>((warps * 32 + threads - 1) / threads), threads, 0, stream>>>(
        d, d_out, static_cast<const T*>(operands.y), workspace);
    check_launch("output_products");
    const std::size_t query_bytes = shared_bytes(d, 5, 1, 0);
    allow_shared_memory(query_gradient_kernel<T>, query_bytes, "attention");
    const dim3 query_grid(num_tiles(d), static_cast<unsigned>(d.batch * d.num_heads));
    query_gradient_kernel<T><<<query_grid, threads, query_bytes, stream>>>(
        d, d_out, in, log_sum_exp, workspace, gradient, score_scale(d), kept_factor(d), random);
    check_launch("query_gradient");
    const std::size_t key_bytes = shared_bytes(d, 6, 2, 0);
    allow_shared_memory(key_gradient_kernel<T>, key_bytes, "attention");
    const dim3 key_grid(num_tiles(d), static_cast<unsigned>(d.batch * d.num_kv_heads));
    key_gradient_kernel<T><<<key_grid, threads, key_bytes, stream>>>(d, d_out, in, log_sum_exp, workspace, gradient,
                                                                     score_scale(d), kept_factor(d), random);
    check_launch("key_gradient");
  });
}

}  // namespace strata::cuda
