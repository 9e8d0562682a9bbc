/// @file
/// Layer and RMS norm: forward a block of threads a row; backward a block of threads a block of rows, whose parameter
/// gradients it sums in shared memory, each column by one thread, so that x and dy are read from memory once.

#include "exec/cuda/kernels/column_sums.cuh"
#include "exec/cuda/kernels/divisor.cuh"
#include "exec/cuda/kernels/norm.hpp"

namespace strata::cuda {
namespace {

/// Threads of a block; each takes the columns threadIdx.x, threadIdx.x + blockDim.x, … of a row.
constexpr unsigned row_threads = 256;

template <typename T>
__global__ void layer_norm_forward_kernel(std::int64_t rows, std::int64_t width, float epsilon, const T* x,
                                          const T* weight, const T* bias, T* y, float* statistics) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const x_row = x + row * width;
    float sum = 0.0F;
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += to_float(x_row[i]);
    const float mean = block_sum(sum) / static_cast<float>(width);
    float squares = 0.0F;
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float d = to_float(x_row[i]) - mean;
      squares += d * d;
    }
    const float rstd = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(width) + epsilon);
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float normalised = (to_float(x_row[i]) - mean) * rstd;
      y[row * width + i] = from_float<T>(normalised * to_float(weight[i]) + to_float(bias[i]));
    }
    if (threadIdx.x == 0) {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = rstd;
    }
  }
}

template <typename T>
__global__ void rms_norm_forward_kernel(std::int64_t rows, std::int64_t width, float epsilon, const T* x,
                                        const T* weight, T* y, float* statistics) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const x_row = x + row * width;
    float squares = 0.0F;
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float v = to_float(x_row[i]);
      squares += v * v;
    }
    const float scale = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(width) + epsilon);
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      y[row * width + i] = from_float<T>(to_float(x_row[i]) * scale * to_float(weight[i]));
    }
    if (threadIdx.x == 0) statistics[row] = scale;
  }
}

/// The gradient of both norms: with x̂ = (x - mean)·scale and g = dy·weight, dx (+)= scale·(g - avg(g) - x̂·avg(g·x̂)), of
/// which RMS norm has neither the mean nor avg(g).
/// @param partials [blocks, 2, width] (RMS norm: [blocks, width]): sums of dy·x̂, then of dy.
template <bool centered, typename T>
__global__ void norm_backward_kernel(std::int64_t rows, std::int64_t width, const T* dy, const T* x, const T* weight,
                                     const float* statistics, T* dx, bool add_dx, float* partials) {
  extern __shared__ float shared_sums[];
  constexpr int num_sums = centered ? 2 : 1;
  float* const dweight = shared_sums;
  float* const dbias = shared_sums + width;  // centered only
  // A thread touches its own columns of the shared sums alone, so nothing but block_sum synchronises.
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    dweight[i] = 0.0F;
    if constexpr (centered) dbias[i] = 0.0F;
  }
  const std::int64_t end = row_block_begin(rows, std::int64_t{blockIdx.x} + 1);
  for (std::int64_t row = row_block_begin(rows, blockIdx.x); row < end; ++row) {
    const float mean = centered ? statistics[2 * row] : 0.0F;
    const float scale = centered ? statistics[2 * row + 1] : statistics[row];
    const std::int64_t at = row * width;
    float sum_g = 0.0F;
    float sum_gx = 0.0F;
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float normalised = (to_float(x[at + i]) - mean) * scale;
      const float d = to_float(dy[at + i]);
      const float g = d * to_float(weight[i]);
      sum_g += g;
      sum_gx += g * normalised;
      dweight[i] += d * normalised;
      if constexpr (centered) dbias[i] += d;
    }
    const float mean_gx = block_sum(sum_gx) / static_cast<float>(width);
    const float mean_g = centered ? block_sum(sum_g) / static_cast<float>(width) : 0.0F;
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float normalised = (to_float(x[at + i]) - mean) * scale;
      const float g = to_float(dy[at + i]) * to_float(weight[i]);
      float d = scale * (g - mean_g - normalised * mean_gx);
      if (add_dx) d += to_float(dx[at + i]);
      dx[at + i] = from_float<T>(d);
    }
  }
  float* const line = partials + std::int64_t{blockIdx.x} * num_sums * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    line[i] = dweight[i];
    if constexpr (centered) line[width + i] = dbias[i];
  }
}

template <bool centered>
void norm_backward(DType dtype, std::int64_t rows, std::int64_t width, const void* dy, const void* x,
                   const void* weight, const float* statistics, void* dx, bool add_dx, float* partials,
                   cudaStream_t stream) {
  const std::size_t shared_bytes = sizeof(float) * static_cast<std::size_t>((centered ? 2 : 1) * width);
  with_storage(dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = norm_backward_kernel<centered, T>;
    allow_shared_memory(kernel, shared_bytes, "the gradient of a norm");
    kernel<<<static_cast<unsigned>(num_row_blocks(rows)), row_threads, shared_bytes, stream>>>(
        rows, width, static_cast<const T*>(dy), static_cast<const T*>(x), static_cast<const T*>(weight), statistics,
        static_cast<T*>(dx), add_dx, partials);
  });
  check_launch("norm_backward");
}

unsigned row_grid(std::int64_t rows) { return static_cast<unsigned>(std::min<std::int64_t>(rows, 1 << 20)); }

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
                        float* statistics, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    layer_norm_forward_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(
        d.rows, d.width, d.epsilon, static_cast<const T*>(x), static_cast<const T*>(weight),
        static_cast<const T*>(bias), static_cast<T*>(y), statistics);
  });
  check_launch("layer_norm_forward");
}

void layer_norm_backward(const LayerNormDims& d, const void* dy, const void* x, const void* weight,
                         const float* statistics, void* dx, bool add_dx, void* dweight, bool add_dweight, void* dbias,
                         bool add_dbias, float* workspace, cudaStream_t stream) {
  norm_backward<true>(d.dtype, d.rows, d.width, dy, x, weight, statistics, dx, add_dx, workspace, stream);
  join_rows(workspace, d.rows, 2 * d.width, d.width, d.gradient_dtype, dweight, add_dweight, stream);
  join_rows(workspace + d.width, d.rows, 2 * d.width, d.width, d.gradient_dtype, dbias, add_dbias, stream);
}

void rms_norm_forward(const RmsNormDims& d, const void* x, const void* weight, void* y, float* statistics,
                      cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    rms_norm_forward_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(
        d.rows, d.width, d.epsilon, static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T*>(y),
        statistics);
  });
  check_launch("rms_norm_forward");
}

void rms_norm_backward(const RmsNormDims& d, const void* dy, const void* x, const void* weight, const float* statistics,
                       void* dx, bool add_dx, void* dweight, bool add_dweight, float* workspace, cudaStream_t stream) {
  norm_backward<false>(d.dtype, d.rows, d.width, dy, x, weight, statistics, dx, add_dx, workspace, stream);
  join_rows(workspace, d.rows, d.width, d.width, d.gradient_dtype, dweight, add_dweight, stream);
}

void column_sums(DType dtype, const void* matrix, std::int64_t rows, std::int64_t columns, DType sums_dtype, void* sums,
                 bool accumulate, float* workspace, cudaStream_t stream) {
  const dim3 grid(sum_blocks(columns), static_cast<unsigned>(num_row_blocks(rows)));
  with_storage(dtype, [&](auto type) {
    column_sums_kernel<<<grid, sum_threads, 0, stream>>>(static_cast<const decltype(type)*>(matrix), rows, columns,
                                                         workspace);
  });
  check_launch("column_sums");
  join_rows(workspace, rows, columns, columns, sums_dtype, sums, accumulate, stream);
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
