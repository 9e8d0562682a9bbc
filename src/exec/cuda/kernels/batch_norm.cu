/// @file
/// Batch normalisation as on the CPU: moments of blocks of rows about each block's own mean, joined in block order in
/// double by Chan's formula, then one pass that writes.

#include "exec/cuda/kernels/column_sums.cuh"
#include "exec/cuda/kernels/norm.hpp"

namespace strata::cuda {
namespace {

constexpr unsigned channel_threads = 128;

dim3 block_grid(const BatchNormDims& d) {
  return {static_cast<unsigned>((d.channels + channel_threads - 1) / channel_threads),
          static_cast<unsigned>(num_row_blocks(d.rows))};
}

/// first = mean, second = squared deviations from it, of block blockIdx.y and each channel.
template <typename T>
__global__ void block_moments(std::int64_t rows, std::int64_t channels, const T* x, float* first, float* second) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (channel >= channels) return;
  const std::int64_t begin = row_block_begin(rows, blockIdx.y);
  const std::int64_t end = row_block_begin(rows, std::int64_t{blockIdx.y} + 1);
  float mean = 0.0F;
  for (std::int64_t row = begin; row < end; ++row) mean += to_float(x[row * channels + channel]);
  mean /= static_cast<float>(end - begin);
  float squares = 0.0F;
  for (std::int64_t row = begin; row < end; ++row) {
    const float deviation = to_float(x[row * channels + channel]) - mean;
    squares += deviation * deviation;
  }
  first[blockIdx.y * channels + channel] = mean;
  second[blockIdx.y * channels + channel] = squares;
}

/// Statistics, and in coefficients center, scale and shift of each channel.
template <typename P>
__global__ void join_moments(std::int64_t rows, std::int64_t channels, float epsilon, const float* first,
                             const float* second, const P* gamma, const P* beta, float* statistics,
                             float* coefficients) {
  for (std::int64_t channel = flat_index(); channel < channels; channel += flat_stride()) {
    double mean = 0.0;
    double squares = 0.0;
    double seen = 0.0;
    for (std::int64_t block = 0; block < num_row_blocks(rows); ++block) {
      const auto count = static_cast<double>(row_block_begin(rows, block + 1) - row_block_begin(rows, block));
      const double delta = static_cast<double>(first[block * channels + channel]) - mean;
      mean += delta * count / (seen + count);
      squares +=
          static_cast<double>(second[block * channels + channel]) + delta * delta * seen * count / (seen + count);
      seen += count;
    }
    const auto inverse =
        static_cast<float>(1.0 / sqrt(squares / static_cast<double>(rows) + static_cast<double>(epsilon)));
    statistics[channel] = static_cast<float>(mean);
    statistics[channels + channel] = inverse;
    coefficients[channel] = static_cast<float>(mean);
    coefficients[channels + channel] = inverse * to_float(gamma[channel]);
    coefficients[2 * channels + channel] = to_float(beta[channel]);
  }
}

template <typename T>
__global__ void apply(std::int64_t n, std::int64_t channels, const T* x, const float* coefficients, T* y) {
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    const std::int64_t channel = i % channels;
    y[i] = from_float<T>((to_float(x[i]) - coefficients[channel]) * coefficients[channels + channel] +
                         coefficients[2 * channels + channel]);
  }
}

__global__ void update_running(BatchNormDims d, const float* statistics, float decay, float weight,
                               RunningStatistics running) {
  for (std::int64_t channel = flat_index(); channel < d.channels; channel += flat_stride()) {
    const auto rows = static_cast<double>(d.rows);
    const double inverse = static_cast<double>(statistics[d.channels + channel]);
    const double biased = fmax(1.0 / (inverse * inverse) - static_cast<double>(d.epsilon), 0.0);
    running.mean[channel] = decay * running.mean[channel] + weight * statistics[channel];
    running.variance[channel] =
        decay * running.variance[channel] + weight * static_cast<float>(biased * rows / (rows - 1.0));
  }
}

template <typename T, typename P>
__global__ void apply_running(BatchNormDims d, const T* x, const P* gamma, const P* beta, RunningStatistics running,
                              T* y) {
  for (std::int64_t i = flat_index(); i < d.rows * d.channels; i += flat_stride()) {
    const std::int64_t channel = i % d.channels;
    const float scale = 1.0F / sqrtf(running.variance[channel] + d.epsilon) * to_float(gamma[channel]);
    y[i] = from_float<T>((to_float(x[i]) - running.mean[channel]) * scale + to_float(beta[channel]));
  }
}

/// first = Σ dy, second = Σ dy · (x - mean).
template <typename T>
__global__ void block_gradients(std::int64_t rows, std::int64_t channels, const T* dy, const T* x, const float* mean,
                                float* first, float* second) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (channel >= channels) return;
  const std::int64_t end = row_block_begin(rows, std::int64_t{blockIdx.y} + 1);
  float sum = 0.0F;
  float product = 0.0F;
  for (std::int64_t row = row_block_begin(rows, blockIdx.y); row < end; ++row) {
    const float g = to_float(dy[row * channels + channel]);
    sum += g;
    product += g * (to_float(x[row * channels + channel]) - mean[channel]);
  }
  first[blockIdx.y * channels + channel] = sum;
  second[blockIdx.y * channels + channel] = product;
}

/// Gradients of the parameters, and in coefficients a, b, c of dx = a·dy - b - c·(x - mean).
template <typename P, typename G>
__global__ void join_gradients(std::int64_t rows, std::int64_t channels, const float* first, const float* second,
                               const P* gamma, const float* inverse_deviation, G* dgamma, G* dbeta, bool accumulate,
                               float* coefficients) {
  for (std::int64_t channel = flat_index(); channel < channels; channel += flat_stride()) {
    double sum = 0.0;
    double product = 0.0;
    for (std::int64_t block = 0; block < num_row_blocks(rows); ++block) {
      sum += static_cast<double>(first[block * channels + channel]);
      product += static_cast<double>(second[block * channels + channel]);
    }
    const auto inverse = static_cast<double>(inverse_deviation[channel]);
    const double scale = static_cast<double>(to_float(gamma[channel])) * inverse;
    const auto count = static_cast<double>(rows);
    coefficients[channel] = static_cast<float>(scale);
    coefficients[channels + channel] = static_cast<float>(scale * sum / count);
    coefficients[2 * channels + channel] = static_cast<float>(scale * inverse * inverse * product / count);
    const double old_gamma = accumulate ? static_cast<double>(to_float(dgamma[channel])) : 0.0;
    const double old_beta = accumulate ? static_cast<double>(to_float(dbeta[channel])) : 0.0;
    dgamma[channel] = from_float<G>(static_cast<float>(old_gamma + product * inverse));
    dbeta[channel] = from_float<G>(static_cast<float>(old_beta + sum));
  }
}

template <typename T>
__global__ void apply_gradient(std::int64_t n, std::int64_t channels, const T* dy, const T* x, const float* mean,
                               const float* coefficients, T* dx) {
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    const std::int64_t channel = i % channels;
    dx[i] = from_float<T>(coefficients[channel] * to_float(dy[i]) - coefficients[channels + channel] -
                          coefficients[2 * channels + channel] * (to_float(x[i]) - mean[channel]));
  }
}

/// The workspace: two sums of each block and channel, three coefficients a channel.
struct Parts {
  float* first;
  float* second;
  float* coefficients;
};
Parts cut(const BatchNormDims& d, float* workspace) {
  STRATA_INVARIANT(d.rows > 1 && d.channels > 0, "batch normalisation of at least two rows");
  const std::int64_t size = num_row_blocks(d.rows) * d.channels;
  return {workspace, workspace + size, workspace + 2 * size};
}

}  // namespace

void batch_norm_forward(const BatchNormDims& d, const BatchNormOperands& operands, float* statistics, float* workspace,
                        cudaStream_t stream) {
  const Parts parts = cut(d, workspace);
  with_storage(d.dtype, [&](auto type) {
    block_moments<<<block_grid(d), channel_threads, 0, stream>>>(
        d.rows, d.channels, static_cast<const decltype(type)*>(operands.x), parts.first, parts.second);
  });
  check_launch("block_moments");
  with_storage(d.parameter_dtype, [&](auto type) {
    using P = decltype(type);
    join_moments<<<flat_blocks(d.channels), flat_threads, 0, stream>>>(
        d.rows, d.channels, d.epsilon, parts.first, parts.second, static_cast<const P*>(operands.gamma),
        static_cast<const P*>(operands.beta), statistics, parts.coefficients);
  });
  check_launch("join_moments");
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t n = d.rows * d.channels;
    apply<<<flat_blocks(n), flat_threads, 0, stream>>>(n, d.channels, static_cast<const T*>(operands.x),
                                                       parts.coefficients, static_cast<T*>(operands.y));
  });
  check_launch("batch_norm_forward");
}

void update_running_statistics(const BatchNormDims& d, const float* statistics, float decay, float weight,
                               const RunningStatistics& running, cudaStream_t stream) {
  update_running<<<flat_blocks(d.channels), flat_threads, 0, stream>>>(d, statistics, decay, weight, running);
  check_launch("update_running_statistics");
}

void batch_norm_inference(const BatchNormDims& d, const BatchNormOperands& operands, const RunningStatistics& running,
                          cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    with_storage(d.parameter_dtype, [&](auto parameter) {
      using T = decltype(type);
      using P = decltype(parameter);
      apply_running<<<flat_blocks(d.rows * d.channels), flat_threads, 0, stream>>>(
          d, static_cast<const T*>(operands.x), static_cast<const P*>(operands.gamma),
          static_cast<const P*>(operands.beta), running, static_cast<T*>(operands.y));
    });
  });
  check_launch("batch_norm_inference");
}

void batch_norm_backward(const BatchNormDims& d, const BatchNormBackwardOperands& operands, bool accumulate,
                         float* workspace, cudaStream_t stream) {
  const Parts parts = cut(d, workspace);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    block_gradients<<<block_grid(d), channel_threads, 0, stream>>>(
        d.rows, d.channels, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x), operands.mean,
        parts.first, parts.second);
  });
  check_launch("block_gradients");
  with_storage(d.parameter_dtype, [&](auto parameter) {
    with_storage(d.gradient_dtype, [&](auto gradient) {
      using P = decltype(parameter);
      using G = decltype(gradient);
      join_gradients<<<flat_blocks(d.channels), flat_threads, 0, stream>>>(
          d.rows, d.channels, parts.first, parts.second, static_cast<const P*>(operands.gamma),
          operands.inverse_deviation, static_cast<G*>(operands.dgamma), static_cast<G*>(operands.dbeta), accumulate,
          parts.coefficients);
    });
  });
  check_launch("join_gradients");
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t n = d.rows * d.channels;
    apply_gradient<<<flat_blocks(n), flat_threads, 0, stream>>>(n, d.channels, static_cast<const T*>(operands.dy),
                                                                static_cast<const T*>(operands.x), operands.mean,
                                                                parts.coefficients, static_cast<T*>(operands.dx));
  });
  check_launch("batch_norm_backward");
}

}  // namespace strata::cuda
