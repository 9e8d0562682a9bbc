#include "exec/cuda/kernels/bias_relu.hpp"
#include "exec/cuda/kernels/divisor.cuh"
#include "exec/cuda/kernels/elementwise.hpp"
#include "exec/cuda/kernels/mapped_column_sums.cuh"
#include "exec/cuda/kernels/norm.hpp"

namespace strata::cuda {
namespace {

/// Eight neighbouring columns a thread and turn where the matrix comes in packs, else one: `columns` counts them.
template <typename T, int width>
__global__ void add_bias_and_relu_kernel(T* matrix, const T* bias, std::int64_t n, Divisor columns) {
  const auto sum_above_zero = [](float x, float b) {
    const float sum = to_float(from_float<T>(x + b));
    return sum <= 0.0F ? 0.0F : sum;
  };
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    auto column = static_cast<std::uint32_t>(i);
    columns.divide(column);
    if constexpr (width == 1) {
      matrix[i] = from_float<T>(sum_above_zero(to_float(matrix[i]), to_float(bias[column])));
    } else {
      float x[pack];
      float b[pack];
      load_pack(matrix + i * pack, x);
      load_pack(bias + std::int64_t{column} * pack, b);
#pragma unroll
      for (int k = 0; k < pack; ++k) x[k] = sum_above_zero(x[k], b[k]);
      store_pack(matrix + i * pack, x);
    }
  }
}

template <typename T>
struct ReluGradient {
  const T* dy;
  const T* y;
  std::int64_t columns;
  __device__ void operator()(std::int64_t row, std::int64_t at, float (&v)[pack]) const {
    const std::int64_t first = row * columns + at * pack;
    float of_y[pack];
    load_pack(dy + first, v);
    load_pack(y + first, of_y);
#pragma unroll
    for (int k = 0; k < pack; ++k) v[k] = of_y[k] <= 0.0F ? 0.0F : v[k];
  }
};

}  // namespace

void add_bias_and_relu(DType dtype, void* matrix, const void* bias, std::int64_t rows, std::int64_t columns,
                       cudaStream_t stream) {
  check_count(rows * columns, "add_bias_and_relu");
  with_storage(dtype, [&](auto type) {
    using T = decltype(type);
    auto* const x = static_cast<T*>(matrix);
    const auto* const b = static_cast<const T*>(bias);
    if (comes_in_packs(columns, matrix, bias)) {
      const std::int64_t n = rows * columns / pack;
      add_bias_and_relu_kernel<T, pack><<<flat_blocks(n), flat_threads, 0, stream>>>(x, b, n, Divisor(columns / pack));
    } else {
      const std::int64_t n = rows * columns;
      add_bias_and_relu_kernel<T, 1><<<flat_blocks(n), flat_threads, 0, stream>>>(x, b, n, Divisor(columns));
    }
  });
  check_launch("add_bias_and_relu");
}

void relu_backward_with_bias(const ColumnSumsDims& d, const void* dy, const void* y, void* dx, void* dbias,
                             bool accumulate, float* partials, cudaStream_t stream) {
  if (!comes_in_packs(d.columns, dy, y, dx)) {
    relu_backward(d.dtype, dy, y, dx, d.rows * d.columns, stream);
    column_sums(d, dx, dbias, accumulate, partials, stream);
    return;
  }
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const ReluGradient<T> gradient{static_cast<const T*>(dy), static_cast<const T*>(y), d.columns};
    map_with_column_sums(d, gradient, static_cast<T*>(dx), dbias, accumulate, partials, stream);
  });
}

}  // namespace strata::cuda
