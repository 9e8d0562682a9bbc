/// @file
/// Kernels over tokens: a block of threads a row of a table, of activations or of logits.

#include <climits>
#include <cmath>

#include "exec/cuda/kernels/column_sums.cuh"
#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/divisor.cuh"
#include "exec/cuda/kernels/token.hpp"

namespace strata::cuda {
namespace {

constexpr unsigned row_threads = 256;
unsigned row_grid(std::int64_t rows) { return static_cast<unsigned>(std::min<std::int64_t>(rows, INT_MAX)); }

/// Of several faults any one is kept: it is only shown.
__device__ bool in_range(std::int64_t value, std::int64_t end, OutOfRange* out_of_range) {
  if (value >= 0 && value < end) return true;
  if (threadIdx.x == 0) *out_of_range = value + 1;
  return false;
}

template <typename T>
__global__ void embedding_forward_kernel(EmbeddingDims d, const std::int32_t* tokens, const T* table,
                                         const T* positions, T* y, OutOfRange* out_of_range) {
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    const std::int64_t token = tokens[row];
    if (!in_range(token, d.vocabulary, out_of_range)) continue;
    const std::int64_t index = token - d.first_token;
    const bool here = index >= 0 && index < (d.table_rows < 0 ? d.vocabulary : d.table_rows);
    const std::int64_t position = d.first_position + row % d.sequence;
    for (std::int64_t i = threadIdx.x; i < d.width; i += blockDim.x) {
      float value = here ? to_float(table[index * d.width + i]) : 0.0F;
      if (positions != nullptr) value += to_float(positions[position * d.width + i]);
      y[row * d.row + i] = from_float<T>(value);
    }
  }
}

/// order[rank] = key of each row, where keys are (token, row) and rank is the number of smaller keys: a sort in one
/// pass, quadratic but without branches; 65,536 rows are 4·10⁹ comparisons.
__global__ void sort_tokens(const std::int32_t* tokens, std::int64_t rows, std::uint64_t* order) {
  __shared__ std::uint64_t tile[row_threads];
  const std::int64_t row = std::int64_t{blockIdx.x} * row_threads + threadIdx.x;
  const auto key_of = [&](std::int64_t r) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(tokens[r])) << 32U | static_cast<std::uint64_t>(r);
  };
  const std::uint64_t key = row < rows ? key_of(row) : 0;
  std::int64_t rank = 0;
  for (std::int64_t begin = 0; begin < rows; begin += row_threads) {
    const std::int64_t other = begin + threadIdx.x;
    __syncthreads();
    tile[threadIdx.x] = other < rows ? key_of(other) : ~std::uint64_t{0};
    __syncthreads();
#pragma unroll 8
    for (unsigned i = 0; i < row_threads; ++i) rank += tile[i] < key;
  }
  if (row < rows) order[rank] = key;
}

/// The end of the places of the token whose first place is @p first: doubled steps, then halved ones.
__device__ inline std::int64_t end_of_token(const std::uint64_t* order, std::int64_t rows, std::int64_t first) {
  const std::uint64_t token = order[first] >> 32U;
  std::int64_t inside = first;
  std::int64_t outside = first + 1;
  while (outside < rows && order[outside] >> 32U == token) {
    inside = outside;
    outside = min(rows, first + 2 * (outside - first));
  }
  while (outside - inside > 1) {
    const std::int64_t middle = inside + (outside - inside) / 2;
    (order[middle] >> 32U == token ? inside : outside) = middle;
  }
  return outside;
}

/// A block of threads a sorted place and 32 columns of blockIdx.y's: the first place of a token sums all of its rows,
/// which may be a tenth of all.
template <typename T, typename G>
__global__ void embedding_table_gradient(EmbeddingDims d, const std::uint64_t* order, const T* dy, G* dtable,
                                         bool accumulate) {
  const std::int64_t table_rows = d.table_rows < 0 ? d.vocabulary : d.table_rows;
  for (std::int64_t first = blockIdx.x; first < d.rows; first += gridDim.x) {
    const std::uint64_t token = order[first] >> 32U;
    if (first > 0 && order[first - 1] >> 32U == token) continue;
    const std::int64_t index = static_cast<std::int64_t>(token) - d.first_token;
    if (index < 0 || index >= table_rows) continue;
    const std::int64_t end = end_of_token(order, d.rows, first);
    for (std::int64_t group = blockIdx.y; group * sum_columns < d.width; group += gridDim.y) {
      const std::int64_t i = group * sum_columns + threadIdx.x % sum_columns;
      const bool is_inside = i < d.width;
      const float sum = sum_of_lines(first, end, [&](std::int64_t j) {
        return is_inside ? to_float(dy[static_cast<std::int64_t>(order[j] & 0xffffffffU) * d.row + i]) : 0.0F;
      });
      if (!is_inside || threadIdx.x >= sum_columns) continue;
      G& out = dtable[index * d.width + i];
      out = from_float<G>(accumulate ? sum + to_float(out) : sum);
    }
  }
}

/// A block of threads a position.
template <typename T, typename G>
__global__ void embedding_position_gradient(EmbeddingDims d, const T* dy, G* dpositions, bool accumulate) {
  for (std::int64_t position = blockIdx.x; position < min(d.sequence, d.rows); position += gridDim.x) {
    for (std::int64_t i = threadIdx.x; i < d.width; i += blockDim.x) {
      float sum = 0.0F;
      for (std::int64_t row = position; row < d.rows; row += d.sequence) sum += to_float(dy[row * d.row + i]);
      G& out = dpositions[(d.first_position + position) * d.width + i];
      out = from_float<G>(accumulate ? sum + to_float(out) : sum);
    }
  }
}

/// A block of threads a position of the sequence.
__global__ void rotary_angles_kernel(RotaryDims d, float* angles) {
  const std::int64_t half = d.head_dim / 2;
  for (std::int64_t t = blockIdx.x; t < d.seq; t += gridDim.x) {
    for (std::int64_t i = threadIdx.x; i < half; i += blockDim.x) {
      const double frequency = pow(d.theta, -2.0 * static_cast<double>(i) / static_cast<double>(d.head_dim));
      const double angle = static_cast<double>(d.first_position + t) * frequency;
      angles[t * d.head_dim + i] = static_cast<float>(cos(angle));
      angles[t * d.head_dim + half + i] = static_cast<float>(sin(angle));
    }
  }
}

/// A block of threads a position of the sequence, for heads of any even size anywhere.
template <typename T>
__global__ void rotary_kernel(RotaryDims d, const float* angles, const T* x, T* y, float direction) {
  const std::int64_t half = d.head_dim / 2;
  const std::int64_t row = (d.num_heads + d.num_copied_heads) * d.head_dim;
  for (std::int64_t t = blockIdx.x; t < d.seq; t += gridDim.x) {
    const float* const cosines = angles + t * d.head_dim;
    const float* const sines = cosines + half;
    for (std::int64_t sample = 0; sample < d.batch; ++sample) {
      const std::int64_t at = (sample * d.seq + t) * row;
      for (std::int64_t pair = threadIdx.x; pair < d.num_heads * half; pair += blockDim.x) {
        const std::int64_t i = pair % half;
        const std::int64_t first_at = at + pair / half * d.head_dim + i;
        const float first = to_float(x[first_at]);
        const float second = to_float(x[first_at + half]);
        const float sine = direction * sines[i];
        y[first_at] = from_float<T>(first * cosines[i] - second * sine);
        y[first_at + half] = from_float<T>(second * cosines[i] + first * sine);
      }
      if (x == y) continue;
      for (std::int64_t i = d.num_heads * d.head_dim + threadIdx.x; i < row; i += blockDim.x) y[at + i] = x[at + i];
    }
  }
}

/// What a thread of rotary_packs divides by: eight pairs are an item, and so are eight copied elements.
struct RotaryItems {
  std::int64_t count = 0;
  Divisor per_row, per_head, seq;
  std::uint32_t rotated = 0;  ///< of a row
};

/// The same where half a head is whole packs.
template <typename T>
__global__ void rotary_packs(RotaryDims d, RotaryItems items, const float* angles, const T* x, T* y, float direction) {
  const std::int64_t half = d.head_dim / 2;
  const std::int64_t width = (d.num_heads + d.num_copied_heads) * d.head_dim;
  for (std::int64_t n = flat_index(); n < items.count; n += flat_stride()) {
    auto item = static_cast<std::uint32_t>(n);
    std::uint32_t row = items.per_row.divide(item);
    const std::int64_t at = std::int64_t{row} * width;
    if (item >= items.rotated) {
      float v[pack];
      const std::int64_t copied_at = at + d.num_heads * d.head_dim + std::int64_t{item - items.rotated} * pack;
      load_pack(x + copied_at, v);
      store_pack(y + copied_at, v);
      continue;
    }
    const std::uint32_t head = items.per_head.divide(item);
    items.seq.divide(row);  // leaves the position
    const std::int64_t first_at = at + std::int64_t{head} * d.head_dim + std::int64_t{item} * pack;
    const float* const cosines = angles + std::int64_t{row} * d.head_dim + std::int64_t{item} * pack;
    float first[pack];
    float second[pack];
    float cosine[pack];
    float sine[pack];
    load_pack(x + first_at, first);
    load_pack(x + first_at + half, second);
    load_pack(cosines, cosine);
    load_pack(cosines + half, sine);
#pragma unroll
    for (int k = 0; k < pack; ++k) {
      const float s = direction * sine[k];
      const float turned = first[k] * cosine[k] - second[k] * s;
      second[k] = second[k] * cosine[k] + first[k] * s;
      first[k] = turned;
    }
    store_pack(y + first_at, first);
    store_pack(y + first_at + half, second);
  }
}

constexpr int cross_entropy_threads = 1024;

/// Calls body(values, begin) for every eight neighbours of line[0, n) that one access moves; what is outside of the
/// line is @p neutral, also where the line does not begin or end with one.
template <typename T, typename Body>
__device__ void for_groups(T* line, std::int64_t n, float neutral, const Body& body) {
  const auto lead = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(line) / sizeof(T) % pack);
  for (std::int64_t group = threadIdx.x; group * pack < n + lead; group += blockDim.x) {
    const std::int64_t begin = group * pack - lead;
    float values[pack];
    if (begin >= 0 && begin + pack <= n) {
      load_pack(line + begin, values);
    } else {
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        values[k] = begin + k >= 0 && begin + k < n ? to_float(line[begin + k]) : neutral;
      }
    }
    body(values, begin);
  }
}
/// Of a group what is inside of the line.
template <typename T>
__device__ void store_group(T* line, std::int64_t n, std::int64_t begin, const float (&values)[pack]) {
  if (begin >= 0 && begin + pack <= n) {
    store_pack(line + begin, values);
    return;
  }
#pragma unroll
  for (int k = 0; k < pack; ++k) {
    if (begin + k >= 0 && begin + k < n) line[begin + k] = from_float<T>(values[k]);
  }
}

/// Two passes over a row, of which the second finds it in the L2 cache. In the first each thread sums the exponentials
/// of its logits below the highest so far, and scales that sum down where it meets a higher one.
template <typename T>
__global__ __launch_bounds__(cross_entropy_threads) void cross_entropy_kernel(CrossEntropyDims d, std::int64_t stride,
                                                                              T* logits, const std::int32_t* targets,
                                                                              float scale, float* loss,
                                                                              OutOfRange* out_of_range) {
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    T* const line = logits + row * stride;
    const std::int64_t target = targets[row];
    const bool taken = target != -1 && in_range(target, d.classes, out_of_range);
    if (!taken) {
      for (std::int64_t i = threadIdx.x; i < d.classes; i += blockDim.x) line[i] = from_float<T>(0.0F);
      if (threadIdx.x == 0) loss[row] = 0.0F;
      continue;
    }
    float mine = -INFINITY;
    float sum = 0.0F;
    for_groups(line, d.classes, -INFINITY, [&](const float(&values)[pack], std::int64_t) {
      float highest = mine;
#pragma unroll
      for (int k = 0; k < pack; ++k) highest = fmaxf(highest, values[k]);
      if (highest > mine) {
        sum *= expf(mine - highest);
        mine = highest;
      }
      if (mine == -INFINITY) {  // what follows would be -∞ + ∞; nothing was met but zeros to be added, or NaN
#pragma unroll
        for (int k = 0; k < pack; ++k) sum += std::isnan(values[k]) ? values[k] : 0.0F;
        return;
      }
#pragma unroll
      for (int k = 0; k < pack; ++k) sum += expf(values[k] - mine);
    });
    const float highest = block_join<Maximum>(mine, -INFINITY);
    sum = block_sum(mine == -INFINITY ? sum : sum * expf(mine - highest));
    const float distance = highest - to_float(line[target]);
    __syncthreads();  // all threads have read the target's logit
    const float factor = scale / sum;
    for_groups(line, d.classes, -INFINITY, [&](float(&values)[pack], std::int64_t begin) {
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        values[k] = begin + k == target ? (expf(-distance) / sum - 1.0F) * scale : expf(values[k] - highest) * factor;
      }
      store_group(line, d.classes, begin, values);
    });
    if (threadIdx.x == 0) loss[row] = logf(sum) + distance;
  }
}

template <typename T>
__global__ __launch_bounds__(cross_entropy_threads) void top_k_kernel(CrossEntropyDims d, std::int64_t stride,
                                                                      const T* logits, const std::int32_t* targets,
                                                                      TopKOutputs outputs, OutOfRange* out_of_range) {
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    const T* const line = logits + row * stride;
    const std::int64_t target = targets[row];
    const bool counts = target != ignored_target && in_range(target, d.classes, out_of_range);
    float highest = -INFINITY;
    float ahead = 0.0F;
    const float own = counts ? to_float(line[target]) : 0.0F;
    for (std::int64_t i = threadIdx.x; counts && i < d.classes; i += blockDim.x) {
      const float other = to_float(line[i]);
      highest = fmaxf(highest, other);
      ahead += other > own || (other == own && i < target) ? 1.0F : 0.0F;
    }
    highest = block_join<Maximum>(highest, -INFINITY);
    ahead = block_sum(ahead);
    float sum = 0.0F;
    for (std::int64_t i = threadIdx.x; counts && i < d.classes; i += blockDim.x) {
      sum += expf(to_float(line[i]) - highest);
    }
    sum = block_sum(sum);
    if (threadIdx.x != 0) continue;
    outputs.loss[row] = counts ? logf(sum) + (highest - own) : 0.0F;
    outputs.top_1[row] = counts && ahead < 1.0F ? 1.0F : 0.0F;
    outputs.top_5[row] = counts && ahead < 5.0F ? 1.0F : 0.0F;
  }
}

/// With the length of its rows as a number.
EmbeddingDims strided(EmbeddingDims d) {
  if (d.row == 0) d.row = d.width;
  return d;
}

}  // namespace

void embedding_forward(const EmbeddingDims& d, const std::int32_t* tokens, const void* table, const void* positions,
                       void* y, OutOfRange* out_of_range, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    embedding_forward_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(
        strided(d), tokens, static_cast<const T*>(table), static_cast<const T*>(positions), static_cast<T*>(y),
        out_of_range);
  });
  check_launch("embedding_forward");
}

void embedding_backward(const EmbeddingDims& d, const EmbeddingBackwardOperands& operands,
                        const EmbeddingAccumulate& accumulate, std::uint64_t* order, cudaStream_t stream) {
  const auto zero = [&](void* to, std::int64_t rows) {
    check(cudaMemsetAsync(to, 0, static_cast<std::size_t>(rows * d.width * size_of(d.gradient_dtype)), stream),
          "embedding_backward");
  };
  if (!accumulate.table) zero(operands.dtable, d.table_rows < 0 ? d.vocabulary : d.table_rows);
  sort_tokens<<<static_cast<unsigned>((d.rows + row_threads - 1) / row_threads), row_threads, 0, stream>>>(
      operands.tokens, d.rows, order);
  check_launch("sort_tokens");
  if (operands.dpositions != nullptr && !accumulate.positions) zero(operands.dpositions, d.num_positions);
  with_storage(d.dtype, [&](auto type) {
    with_storage(d.gradient_dtype, [&](auto gradient) {
      using T = decltype(type);
      using G = decltype(gradient);
      // Enough blocks to fill a GPU, which step through the places: most of them are not the first of a token.
      const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(d.rows, 1024)), std::min(sum_blocks(d.width), 16U));
      embedding_table_gradient<<<grid, sum_threads, 0, stream>>>(strided(d), order, static_cast<const T*>(operands.dy),
                                                                 static_cast<G*>(operands.dtable), accumulate.table);
      check_launch("embedding_table_gradient");
      if (operands.dpositions == nullptr) return;
      embedding_position_gradient<<<row_grid(std::min(d.sequence, d.rows)), row_threads, 0, stream>>>(
          strided(d), static_cast<const T*>(operands.dy), static_cast<G*>(operands.dpositions), accumulate.positions);
      check_launch("embedding_position_gradient");
    });
  });
}

void rotary_angles(const RotaryDims& d, float* angles, cudaStream_t stream) {
  rotary_angles_kernel<<<row_grid(d.seq), row_threads, 0, stream>>>(d, angles);
  check_launch("rotary_angles");
}

void rotary(const RotaryDims& d, const float* angles, const void* x, void* y, float direction, cudaStream_t stream) {
  STRATA_INVARIANT(d.head_dim > 0 && d.head_dim % 2 == 0, "a rotary head has an even number of elements");
  const std::int64_t packs_of_half = d.head_dim / 2 / pack;
  const std::int64_t rotated = d.num_heads * packs_of_half;
  const std::int64_t copied = x == y ? 0 : d.num_copied_heads * d.head_dim / pack;
  const std::int64_t count = d.batch * d.seq * (rotated + copied);
  const bool in_packs = d.head_dim % (2 * pack) == 0 && are_aligned(angles, x, y) && count < (std::int64_t{1} << 31);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    if (in_packs && count > 0) {
      const RotaryItems items{.count = count,
                              .per_row = Divisor(rotated + copied),
                              .per_head = Divisor(packs_of_half),
                              .seq = Divisor(d.seq),
                              .rotated = static_cast<std::uint32_t>(rotated)};
      rotary_packs<<<flat_blocks(count), flat_threads, 0, stream>>>(d, items, angles, static_cast<const T*>(x),
                                                                    static_cast<T*>(y), direction);
      return;
    }
    rotary_kernel<<<row_grid(d.seq), row_threads, 0, stream>>>(d, angles, static_cast<const T*>(x), static_cast<T*>(y),
                                                               direction);
  });
  check_launch("rotary");
}

void cross_entropy_gradient(const CrossEntropyDims& d, void* logits, const std::int32_t* targets, float scale,
                            float* loss, OutOfRange* out_of_range, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    cross_entropy_kernel<<<row_grid(d.rows), cross_entropy_threads, 0, stream>>>(
        d, d.row_stride == 0 ? d.classes : d.row_stride, static_cast<T*>(logits), targets, scale, loss, out_of_range);
  });
  check_launch("cross_entropy_gradient");
}

void top_k(const CrossEntropyDims& d, const void* logits, const std::int32_t* targets, const TopKOutputs& outputs,
           OutOfRange* out_of_range, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    top_k_kernel<<<row_grid(d.rows), cross_entropy_threads, 0, stream>>>(
        d, d.row_stride == 0 ? d.classes : d.row_stride, static_cast<const T*>(logits), targets, outputs, out_of_range);
  });
  check_launch("top_k");
}

}  // namespace strata::cuda
