/// @file
/// Layer and RMS norm, eight columns a thread at a time: forward a block of threads a row; backward a block of threads
/// a block of rows, together row by row. Where rows are short, each warp has rows by itself. Parameter gradients each
/// thread sums for its own columns, so that x and dy are read from memory once.

#include <string>
#include <type_traits>

#include "exec/cuda/kernels/column_sums.cuh"
#include "exec/cuda/kernels/divisor.cuh"
#include "exec/cuda/kernels/norm.hpp"

namespace strata::cuda {
namespace {

/// Threads of a block: one for so many times eight columns, as far as there are as many.
constexpr unsigned most_row_threads = 512;
unsigned row_threads(std::int64_t width, std::int64_t packs = 1) {
  const std::int64_t wanted = (width + packs * pack - 1) / (packs * pack);
  return static_cast<unsigned>(std::clamp<std::int64_t>((wanted + 31) / 32 * 32, 32, most_row_threads));
}
/// Packs of a thread forward. LayerNorm sums over the block twice a row, which fewer threads do faster; RMS norm, which
/// does so once, is faster with more of them (rows of 4096 in bf16 on an H200: 0.50 against 0.44 of a copy's rate with
/// four packs, 0.50 against 0.72).
template <bool centered>
constexpr std::int64_t forward_packs = centered ? 4 : 1;

/// Eight values of x, or of x + added where that is not null: these are rounded, and written to @p sum.
/// @param at of the first. @param left in the row.
template <typename T>
__device__ void load_sum(const T* x, const T* added, T* sum, std::int64_t at, std::int64_t left, bool aligned,
                         float (&v)[pack]) {
  load_some(x + at, left, aligned, v);
  if (added == nullptr) return;
  float more[pack];
  load_some(added + at, left, aligned, more);
#pragma unroll
  for (int k = 0; k < pack; ++k) v[k] = to_float(from_float<T>(v[k] + more[k]));
  store_some(sum + at, left, aligned, v);
}

/// Rows of at most so many columns take a warp each: threads of a block then wait for each other not at all forward,
/// and once instead of twice a row backward.
constexpr std::int64_t most_warp_columns = 1024;
constexpr unsigned warp = 32;
constexpr unsigned num_warps = 8;  ///< of a block
constexpr unsigned columns_of_warp = warp * pack;

/// The threads that have a row together: a warp of a block, or all of a block.
template <bool warps>
struct RowThreads {
  __device__ static std::int64_t first_row() {
    return warps ? std::int64_t{blockIdx.x} * num_warps + threadIdx.x / warp : blockIdx.x;
  }
  __device__ static std::int64_t rows_at_once() {
    return warps ? std::int64_t{gridDim.x} * num_warps : std::int64_t{gridDim.x};
  }
  __device__ static unsigned number() { return warps ? threadIdx.x % warp : threadIdx.x; }
  __device__ static std::int64_t columns_at_once() { return std::int64_t{warps ? warp : blockDim.x} * pack; }
  __device__ static float sum(float value) { return warps ? warp_sum(value) : block_sum(value); }
};

/// y = x̂·weight [+ bias] of both norms: LayerNorm is centered and has a bias. A thread keeps the columns that are its,
/// so that x is read once.
/// @tparam packs of eight columns a thread.
/// @param statistics [rows, 2] the mean and 1 / the deviation (RMS norm: [rows], 1 / the root of the mean square).
template <bool centered, bool warps, int packs, typename T>
__global__ __launch_bounds__(warps ? warp* num_warps : most_row_threads) void norm_forward_kernel(
    std::int64_t rows, std::int64_t width, bool aligned, float epsilon, const T* x, const T* added, T* sums,
    const T* weight, const T* bias, T* y, float* statistics) {
  using Threads = RowThreads<warps>;
  const auto column_of = [](int p) { return Threads::columns_at_once() * p + std::int64_t{Threads::number()} * pack; };
  const auto columns = static_cast<float>(width);
  for (std::int64_t row = Threads::first_row(); row < rows; row += Threads::rows_at_once()) {
    float v[packs][pack];
    float sum = 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const std::int64_t column = column_of(p);
      const std::int64_t left = width - column;
      if (left > 0) {
        load_sum(x, added, sums, row * width + column, left, aligned, v[p]);
      } else {
#pragma unroll
        for (int k = 0; k < pack; ++k) v[p][k] = 0.0F;
      }
#pragma unroll
      for (int k = 0; k < pack; ++k) sum += v[p][k];
    }
    const float mean = centered ? Threads::sum(sum) / columns : 0.0F;
    float squares = 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        v[p][k] = column_of(p) + k < width ? v[p][k] - mean : 0.0F;
        squares += v[p][k] * v[p][k];
      }
    }
    const float scale = 1.0F / sqrtf(Threads::sum(squares) / columns + epsilon);
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const std::int64_t column = column_of(p);
      const std::int64_t left = width - column;
      if (left <= 0) continue;
      float w[pack];
      float b[pack] = {};
      load_some(weight + column, left, aligned, w);
      if constexpr (centered) load_some(bias + column, left, aligned, b);
#pragma unroll
      for (int k = 0; k < pack; ++k) v[p][k] = v[p][k] * scale * w[k] + b[k];
      store_some(y + row * width + column, left, aligned, v[p]);
    }
    if (Threads::number() != 0) continue;
    if constexpr (centered) {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = scale;
    } else {
      statistics[row] = scale;
    }
  }
}

/// The gradient of both norms: with x̂ = (x - mean)·scale and g = dy·weight, dx (+)= scale·(g - avg(g) - x̂·avg(g·x̂)), of
/// which RMS norm has neither the mean nor avg(g).
/// @tparam packs of eight columns a thread, whose sums it keeps.
/// @param partials [blocks, 2, width] (RMS norm: [blocks, width]): sums of dy·x̂, then of dy.
template <bool centered, int packs, typename T>
__global__ __launch_bounds__(most_row_threads) void norm_backward_kernel(std::int64_t rows, std::int64_t width,
                                                                         bool aligned, const T* dy, const T* x,
                                                                         const T* weight, const float* statistics,
                                                                         T* dx, bool add_dx, float* partials) {
  constexpr int num_sums = centered ? 2 : 1;
  float sums[num_sums][packs][pack] = {};
  float v[pack];
  float d[pack];
  float w[pack];
  const auto column_of = [&](int p) { return (std::int64_t{blockDim.x} * p + threadIdx.x) * pack; };
  const std::int64_t end = row_block_begin(rows, std::int64_t{blockIdx.x} + 1);
  for (std::int64_t row = row_block_begin(rows, blockIdx.x); row < end; ++row) {
    const float mean = centered ? statistics[2 * row] : 0.0F;
    const float scale = centered ? statistics[2 * row + 1] : statistics[row];
    // x̂, dy and g of eight columns; where the row ends dy and g are 0.
    const auto load = [&](std::int64_t column) {
      const std::int64_t at = row * width + column;
      load_some(x + at, width - column, aligned, v);
      load_some(dy + at, width - column, aligned, d);
      load_some(weight + column, width - column, aligned, w);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        v[k] = (v[k] - mean) * scale;
        w[k] *= d[k];
      }
    };
    float sum_g = 0.0F;
    float sum_gx = 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const std::int64_t column = column_of(p);
      if (column >= width) continue;
      load(column);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        sum_g += w[k];
        sum_gx += w[k] * v[k];
        sums[0][p][k] += d[k] * v[k];
        if constexpr (centered) sums[1][p][k] += d[k];
      }
    }
    const float mean_gx = block_sum(sum_gx) / static_cast<float>(width);
    const float mean_g = centered ? block_sum(sum_g) / static_cast<float>(width) : 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const std::int64_t column = column_of(p);
      if (column >= width) continue;
      load(column);
      T* const to = dx + row * width + column;
#pragma unroll
      for (int k = 0; k < pack; ++k) v[k] = scale * (w[k] - mean_g - v[k] * mean_gx);
      if (add_dx) {
        load_some(to, width - column, aligned, d);
#pragma unroll
        for (int k = 0; k < pack; ++k) v[k] += d[k];
      }
      store_some(to, width - column, aligned, v);
    }
  }
  float* const line = partials + std::int64_t{blockIdx.x} * num_sums * width;
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    for (int k = 0; k < pack; ++k) {
      const std::int64_t column = column_of(p) + k;
      if (column >= width) break;
      line[column] = sums[0][p][k];
      if constexpr (centered) line[width + column] = sums[1][p][k];
    }
  }
}

/// norm_backward_kernel with a warp a row; operands are the same.
template <bool centered, int packs, typename T>
__global__ __launch_bounds__(warp* num_warps, packs <= 3 ? 2 : 1)  // two blocks have what there are of registers
    void norm_backward_of_warps(std::int64_t rows, std::int64_t width, bool aligned, const T* dy, const T* x,
                                const T* weight, const float* statistics, T* dx, bool add_dx, float* partials) {
  constexpr int num_sums = centered ? 2 : 1;
  __shared__ float of_warps[num_warps][columns_of_warp];
  float sums[num_sums][packs][pack] = {};
  float normed[packs][pack];
  float g[packs][pack];
  const unsigned lane = threadIdx.x % warp;
  const auto column_of = [&](int p) { return std::int64_t{columns_of_warp} * p + std::int64_t{lane} * pack; };
  const std::int64_t begin = row_block_begin(rows, blockIdx.x);
  const std::int64_t end = row_block_begin(rows, std::int64_t{blockIdx.x} + 1);
  // All warps take as many turns; one that has no row left adds nothing.
  for (std::int64_t turn = begin; turn < end; turn += num_warps) {
    const std::int64_t row = turn + threadIdx.x / warp;
    const bool has_row = row < end;
    const float mean = centered && has_row ? statistics[2 * row] : 0.0F;
    const float scale = !has_row ? 0.0F : centered ? statistics[2 * row + 1] : statistics[row];
    float sum_g = 0.0F;
    float sum_gx = 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const std::int64_t column = column_of(p);
      const std::int64_t left = has_row ? width - column : 0;
      const std::int64_t at = left > 0 ? row * width + column : 0;
      float d[pack];
      float w[pack];
      load_some(x + at, left, aligned, normed[p]);
      load_some(dy + at, left, aligned, d);
      load_some(weight + (left > 0 ? column : 0), left, aligned, w);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        normed[p][k] = (normed[p][k] - mean) * scale;
        g[p][k] = w[k] * d[k];
        sum_g += g[p][k];
        sum_gx += g[p][k] * normed[p][k];
        sums[0][p][k] += d[k] * normed[p][k];
        if constexpr (centered) sums[1][p][k] += d[k];
      }
    }
    const float mean_gx = warp_sum(sum_gx) / static_cast<float>(width);
    const float mean_g = centered ? warp_sum(sum_g) / static_cast<float>(width) : 0.0F;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const std::int64_t column = column_of(p);
      if (!has_row || column >= width) continue;
      T* const to = dx + row * width + column;
      float v[pack];
#pragma unroll
      for (int k = 0; k < pack; ++k) v[k] = scale * (g[p][k] - mean_g - normed[p][k] * mean_gx);
      if (add_dx) {
        float before[pack];
        load_some(to, width - column, aligned, before);
#pragma unroll
        for (int k = 0; k < pack; ++k) v[k] += before[k];
      }
      store_some(to, width - column, aligned, v);
    }
  }
  // Of each column the warps' sums, in their order.
  float* const line = partials + std::int64_t{blockIdx.x} * num_sums * width;
#pragma unroll
  for (int s = 0; s < num_sums; ++s) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      __syncthreads();
#pragma unroll
      for (int k = 0; k < pack; ++k) of_warps[threadIdx.x / warp][lane * pack + k] = sums[s][p][k];
      __syncthreads();
      const std::int64_t column = std::int64_t{columns_of_warp} * p + threadIdx.x;
      if (column >= width) continue;
      float total = 0.0F;
      for (unsigned w = 0; w < num_warps; ++w) total += of_warps[w][threadIdx.x];
      line[s * width + column] = total;
    }
  }
}
static_assert(warp * num_warps == columns_of_warp, "a thread a column when warps' sums are added");

/// Calls body(number of packs a lane as a constant), of rows of at most most_warp_columns.
template <typename Body>
void with_packs_of_warp(std::int64_t width, Body&& body) {
  if (width <= columns_of_warp) {
    body(std::integral_constant<int, 1>{});
  } else if (width <= 2 * columns_of_warp) {
    body(std::integral_constant<int, 2>{});
  } else if (width <= 3 * columns_of_warp) {
    body(std::integral_constant<int, 3>{});
  } else {
    body(std::integral_constant<int, 4>{});
  }
}

/// Calls body(number of packs a thread as a constant). @throws Unsupported naming the width.
template <typename Body>
void with_packs(std::int64_t width, unsigned threads, Body&& body) {
  const std::int64_t columns = std::int64_t{threads} * pack;
  if (width <= columns) {
    body(std::integral_constant<int, 1>{});
  } else if (width <= 2 * columns) {
    body(std::integral_constant<int, 2>{});
  } else if (width <= 4 * columns) {
    body(std::integral_constant<int, 4>{});
  } else if (width <= 8 * columns) {
    body(std::integral_constant<int, 8>{});
  } else {
    throw Unsupported("a norm of " + std::to_string(width) + " columns: the CUDA kernel has at most " +
                      std::to_string(8 * columns));
  }
}

template <bool centered, typename Dims, typename Operands>
void norm_backward(const Dims& d, const Operands& operands, bool add_dx, float* partials, cudaStream_t stream) {
  const bool aligned = d.width % pack == 0 && are_aligned(operands.dy, operands.x, operands.weight, operands.dx);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    if (d.width <= most_warp_columns) {
      with_packs_of_warp(d.width, [&](auto packs) {
        norm_backward_of_warps<centered, packs()>
            <<<static_cast<unsigned>(num_row_blocks(d.rows)), warp * num_warps, 0, stream>>>(
                d.rows, d.width, aligned, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
                static_cast<const T*>(operands.weight), operands.statistics, static_cast<T*>(operands.dx), add_dx,
                partials);
      });
      return;
    }
    const unsigned threads = row_threads(d.width);
    with_packs(d.width, threads, [&](auto packs) {
      norm_backward_kernel<centered, packs()><<<static_cast<unsigned>(num_row_blocks(d.rows)), threads, 0, stream>>>(
          d.rows, d.width, aligned, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
          static_cast<const T*>(operands.weight), operands.statistics, static_cast<T*>(operands.dx), add_dx, partials);
    });
  });
  check_launch("norm_backward");
}

template <bool centered, typename Dims>
void norm_forward(const Dims& d, const void* x, const AddedRows& added, const void* weight, const void* bias, void* y,
                  float* statistics, cudaStream_t stream) {
  const bool aligned = d.width % pack == 0 && are_aligned(x, added.rows, added.sum, weight, bias, y);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const auto launch = [&](auto kernel, std::int64_t blocks, unsigned threads) {
      kernel<<<static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 20)), threads, 0, stream>>>(
          d.rows, d.width, aligned, d.epsilon, static_cast<const T*>(x), static_cast<const T*>(added.rows),
          static_cast<T*>(added.sum), static_cast<const T*>(weight), static_cast<const T*>(bias), static_cast<T*>(y),
          statistics);
    };
    if (d.width <= most_warp_columns) {
      with_packs_of_warp(d.width, [&](auto packs) {
        launch(norm_forward_kernel<centered, true, packs(), T>, (d.rows + num_warps - 1) / num_warps, warp * num_warps);
      });
    } else {
      const unsigned threads = row_threads(d.width, forward_packs<centered>);
      with_packs(d.width, threads,
                 [&](auto packs) { launch(norm_forward_kernel<centered, false, packs(), T>, d.rows, threads); });
    }
  });
}

template <typename T>
__global__ void column_sums_kernel(const T* matrix, std::int64_t rows, std::int64_t columns, float* partials) {
  const std::int64_t column = std::int64_t{blockIdx.x} * sum_columns + threadIdx.x % sum_columns;
  const bool is_inside = column < columns;
  const float sum =
      sum_of_lines(row_block_begin(rows, blockIdx.y), row_block_begin(rows, std::int64_t{blockIdx.y} + 1),
                   [&](std::int64_t row) { return is_inside ? to_float(matrix[row * columns + column]) : 0.0F; });
  if (is_inside && threadIdx.x < sum_columns) partials[blockIdx.y * columns + column] = sum;
}

template <typename T>
__global__ void add_bias_kernel(T* matrix, const T* bias, std::int64_t n, Divisor columns) {
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    auto column = static_cast<std::uint32_t>(i);
    columns.divide(column);
    matrix[i] = from_float<T>(to_float(matrix[i]) + to_float(bias[column]));
  }
}

}  // namespace

void layer_norm_forward(const LayerNormDims& d, const void* x, const void* weight, const void* bias, void* y,
                        float* statistics, cudaStream_t stream, const AddedRows& added) {
  norm_forward<true>(d, x, added, weight, bias, y, statistics, stream);
  check_launch("layer_norm_forward");
}

void layer_norm_backward(const LayerNormDims& d, const LayerNormBackwardOperands& operands,
                         const LayerNormAccumulate& accumulate, float* workspace, cudaStream_t stream) {
  norm_backward<true>(d, operands, accumulate.dx, workspace, stream);
  join_rows(workspace, d.rows, d.width, d.gradient_dtype,
            {{operands.dweight, accumulate.dweight}, {operands.dbias, accumulate.dbias}}, stream);
}

void rms_norm_forward(const RmsNormDims& d, const void* x, const void* weight, void* y, float* statistics,
                      cudaStream_t stream, const AddedRows& added) {
  norm_forward<false>(d, x, added, weight, nullptr, y, statistics, stream);
  check_launch("rms_norm_forward");
}

void rms_norm_backward(const RmsNormDims& d, const RmsNormBackwardOperands& operands,
                       const RmsNormAccumulate& accumulate, float* workspace, cudaStream_t stream) {
  norm_backward<false>(d, operands, accumulate.dx, workspace, stream);
  join_rows(workspace, d.rows, d.width, d.gradient_dtype, {{operands.dweight, accumulate.dweight}}, stream);
}

void column_sums(const ColumnSumsDims& d, const void* matrix, void* sums, bool accumulate, float* workspace,
                 cudaStream_t stream) {
  const dim3 grid(sum_blocks(d.columns), static_cast<unsigned>(num_row_blocks(d.rows)));
  with_storage(d.dtype, [&](auto type) {
    column_sums_kernel<<<grid, sum_threads, 0, stream>>>(static_cast<const decltype(type)*>(matrix), d.rows, d.columns,
                                                         workspace);
  });
  check_launch("column_sums");
  join_rows(workspace, d.rows, d.columns, d.sums_dtype, {{sums, accumulate}}, stream);
}

void add_bias(DType dtype, void* matrix, const void* bias, std::int64_t rows, std::int64_t columns,
              cudaStream_t stream) {
  check_count(rows * columns, "add_bias");
  with_storage(dtype, [&](auto type) {
    using T = decltype(type);
    add_bias_kernel<<<flat_blocks(rows * columns), flat_threads, 0, stream>>>(
        static_cast<T*>(matrix), static_cast<const T*>(bias), rows * columns, Divisor(columns));
  });
  check_launch("add_bias");
}

}  // namespace strata::cuda
