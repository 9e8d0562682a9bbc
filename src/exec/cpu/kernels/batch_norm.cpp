/// @file
/// Batch normalisation. Rows are cut into blocks of a fixed length; each block's two sums a channel go to the
/// workspace, and are then joined in block order in double. The variance of a block is taken about the block's own mean
/// and joined by Chan's formula (Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
/// variances", 1979), so one pass over memory suffices and nothing cancels.

#include "exec/cpu/kernels/batch_norm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "exec/cpu/kernels/dnnl_context.hpp"
#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t block_rows = 256;
constexpr std::int64_t strip = 64;  // channels at a time: sums stay in the first-level cache

std::int64_t num_blocks(const BatchNormDims& dims) { return (dims.rows + block_rows - 1) / block_rows; }
std::int64_t rows_of(const BatchNormDims& dims, std::int64_t block) {
  return std::min(block_rows, dims.rows - block * block_rows);
}

/// Two partial sums for each block and channel, and three coefficients a channel for the pass that writes.
struct Buffers {
  float* first;         // [num_blocks, channels]
  float* second;        // [num_blocks, channels]
  float* coefficients;  // [3, channels]
};
Buffers cut(WorkspaceCutter& cutter, const BatchNormDims& dims) {
  STRATA_INVARIANT(dims.rows > 1 && dims.channels > 0,
                   fmt::format("batch normalisation of {} rows of {} channels", dims.rows, dims.channels));
  const auto floats = [&cutter](std::int64_t count) {
    return reinterpret_cast<float*>(cutter.take(count * size_of(DType::f32)));
  };
  Buffers buffers{};
  buffers.first = floats(num_blocks(dims) * dims.channels);
  buffers.second = floats(num_blocks(dims) * dims.channels);
  buffers.coefficients = floats(3 * dims.channels);
  return buffers;
}

/// Calls body(block, channel, count) for every block of rows and strip of channels, on the OpenMP threads.
template <typename Body>
void for_tiles(const BatchNormDims& dims, Body&& body) {
  const std::int64_t num_strips = (dims.channels + strip - 1) / strip;
#pragma omp parallel for schedule(static)
  for (std::int64_t task = 0; task < num_blocks(dims) * num_strips; ++task) {
    const std::int64_t channel = task % num_strips * strip;
    body(task / num_strips, channel, std::min(strip, dims.channels - channel));
  }
}

/// first = mean, second = sum of squared deviations from it, of each block.
template <typename T>
void block_moments(const BatchNormDims& dims, const T* x, const Buffers& buffers) {
  for_tiles(dims, [&](std::int64_t block, std::int64_t channel, std::int64_t count) {
    const T* corner = x + block * block_rows * dims.channels + channel;
    const std::int64_t rows = rows_of(dims, block);
    float mean[strip] = {};
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < count; ++i) {
        mean[i] += static_cast<float>(corner[row * dims.channels + i]);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      mean[i] /= static_cast<float>(rows);
    }
    float squares[strip] = {};
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < count; ++i) {
        const float deviation = static_cast<float>(corner[row * dims.channels + i]) - mean[i];
        squares[i] += deviation * deviation;
      }
    }
    std::copy_n(mean, count, buffers.first + block * dims.channels + channel);
    std::copy_n(squares, count, buffers.second + block * dims.channels + channel);
  });
}

void join_moments(const BatchNormDims& dims, const Buffers& buffers, const BatchNormStatistics& statistics) {
  const auto total = static_cast<double>(dims.rows);
  for (std::int64_t channel = 0; channel < dims.channels; ++channel) {
    double mean = 0;
    double squares = 0;
    double seen = 0;
    for (std::int64_t block = 0; block < num_blocks(dims); ++block) {
      const auto rows = static_cast<double>(rows_of(dims, block));
      const double delta = static_cast<double>(buffers.first[block * dims.channels + channel]) - mean;
      mean += delta * rows / (seen + rows);
      squares += static_cast<double>(buffers.second[block * dims.channels + channel]) +
                 delta * delta * seen * rows / (seen + rows);
      seen += rows;
    }
    statistics.mean[channel] = static_cast<float>(mean);
    statistics.inverse_deviation[channel] =
        static_cast<float>(1.0 / std::sqrt(squares / total + static_cast<double>(dims.epsilon)));
  }
}

/// y = (x - center) · scale + shift; coefficients = center, scale, shift.
template <typename T>
void apply(const BatchNormDims& dims, const T* x, const float* coefficients, T* y) {
  const float* center = coefficients;
  const float* scale = coefficients + dims.channels;
  const float* shift = coefficients + 2 * dims.channels;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const T* source = x + row * dims.channels;
    T* target = y + row * dims.channels;
    for (std::int64_t i = 0; i < dims.channels; ++i) {
      target[i] = T((static_cast<float>(source[i]) - center[i]) * scale[i] + shift[i]);
    }
  }
}

template <typename P>
void set_coefficients(const BatchNormDims& dims, const float* mean, const float* inverse_deviation, const P* gamma,
                      const P* beta, float* coefficients) {
  for (std::int64_t channel = 0; channel < dims.channels; ++channel) {
    coefficients[channel] = mean[channel];
    coefficients[dims.channels + channel] = inverse_deviation[channel] * static_cast<float>(gamma[channel]);
    coefficients[2 * dims.channels + channel] = static_cast<float>(beta[channel]);
  }
}

/// first = sum of dy, second = sum of dy · (x - mean), of each block.
template <typename T>
void block_gradients(const BatchNormDims& dims, const T* dy, const T* x, const float* mean, const Buffers& buffers) {
  for_tiles(dims, [&](std::int64_t block, std::int64_t channel, std::int64_t count) {
    const std::int64_t corner = block * block_rows * dims.channels + channel;
    float sum[strip] = {};
    float product[strip] = {};
    for (std::int64_t row = 0; row < rows_of(dims, block); ++row) {
      const T* gradient = dy + corner + row * dims.channels;
      const T* value = x + corner + row * dims.channels;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto g = static_cast<float>(gradient[i]);
        sum[i] += g;
        product[i] += g * (static_cast<float>(value[i]) - mean[channel + i]);
      }
    }
    std::copy_n(sum, count, buffers.first + block * dims.channels + channel);
    std::copy_n(product, count, buffers.second + block * dims.channels + channel);
  });
}

/// Joins the blocks, adds to dgamma and dbeta, and leaves in coefficients what dx = a·dy - b - c·(x - mean) needs.
template <typename P, typename G>
void join_gradients(const BatchNormDims& dims, const Buffers& buffers, const P* gamma, const float* inverse_deviation,
                    G* dgamma, G* dbeta, bool accumulate) {
  for (std::int64_t channel = 0; channel < dims.channels; ++channel) {
    double sum = 0;
    double product = 0;
    for (std::int64_t block = 0; block < num_blocks(dims); ++block) {
      sum += static_cast<double>(buffers.first[block * dims.channels + channel]);
      product += static_cast<double>(buffers.second[block * dims.channels + channel]);
    }
    const double inverse = static_cast<double>(inverse_deviation[channel]);
    const double scale = static_cast<double>(static_cast<float>(gamma[channel])) * inverse;
    const auto rows = static_cast<double>(dims.rows);
    buffers.coefficients[channel] = static_cast<float>(scale);
    buffers.coefficients[dims.channels + channel] = static_cast<float>(scale * sum / rows);
    buffers.coefficients[2 * dims.channels + channel] = static_cast<float>(scale * inverse * inverse * product / rows);
    const double old_gamma = accumulate ? static_cast<double>(static_cast<float>(dgamma[channel])) : 0.0;
    const double old_beta = accumulate ? static_cast<double>(static_cast<float>(dbeta[channel])) : 0.0;
    dgamma[channel] = G(static_cast<float>(old_gamma + product * inverse));
    dbeta[channel] = G(static_cast<float>(old_beta + sum));
  }
}

template <typename T>
void apply_gradient(const BatchNormDims& dims, const T* dy, const T* x, const float* mean, const float* coefficients,
                    T* dx) {
  const float* a = coefficients;
  const float* b = coefficients + dims.channels;
  const float* c = coefficients + 2 * dims.channels;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const std::int64_t begin = row * dims.channels;
    for (std::int64_t i = 0; i < dims.channels; ++i) {
      const float deviation = static_cast<float>(x[begin + i]) - mean[i];
      dx[begin + i] = T(a[i] * static_cast<float>(dy[begin + i]) - b[i] - c[i] * deviation);
    }
  }
}

}  // namespace

std::int64_t batch_norm_workspace_bytes(const BatchNormDims& dims) {
  WorkspaceCutter cutter;
  cut(cutter, dims);
  return cutter.taken_bytes();
}

void batch_norm_forward(const BatchNormDims& dims, const BatchNormOperands& operands,
                        const BatchNormStatistics& statistics, std::span<std::byte> workspace) {
  WorkspaceCutter cutter(workspace);
  const Buffers buffers = cut(cutter, dims);
  with_storage(dims.dtype, [&]<typename T>() { block_moments(dims, static_cast<const T*>(operands.x), buffers); });
  join_moments(dims, buffers, statistics);
  with_storage(dims.parameter_dtype, [&]<typename P>() {
    set_coefficients(dims, statistics.mean, statistics.inverse_deviation, static_cast<const P*>(operands.gamma),
                     static_cast<const P*>(operands.beta), buffers.coefficients);
  });
  with_storage(dims.dtype, [&]<typename T>() {
    apply(dims, static_cast<const T*>(operands.x), buffers.coefficients, static_cast<T*>(operands.y));
  });
}

void update_running_statistics(const BatchNormDims& dims, const float* statistics, float decay, float weight,
                               const RunningStatistics& running) {
  const auto rows = static_cast<double>(dims.rows);
  for (std::int64_t channel = 0; channel < dims.channels; ++channel) {
    const double inverse = static_cast<double>(statistics[dims.channels + channel]);
    const double biased = std::max(1.0 / (inverse * inverse) - static_cast<double>(dims.epsilon), 0.0);
    running.mean[channel] = decay * running.mean[channel] + weight * statistics[channel];
    running.variance[channel] =
        decay * running.variance[channel] + weight * static_cast<float>(biased * rows / (rows - 1.0));
  }
}

void batch_norm_inference(const BatchNormDims& dims, const BatchNormOperands& operands,
                          const RunningStatistics& running, std::span<std::byte> workspace) {
  WorkspaceCutter cutter(workspace);
  const Buffers buffers = cut(cutter, dims);
  float* inverse_deviation = buffers.first;
  for (std::int64_t channel = 0; channel < dims.channels; ++channel) {
    inverse_deviation[channel] = 1.0F / std::sqrt(running.variance[channel] + dims.epsilon);
  }
  with_storage(dims.parameter_dtype, [&]<typename P>() {
    set_coefficients(dims, running.mean, inverse_deviation, static_cast<const P*>(operands.gamma),
                     static_cast<const P*>(operands.beta), buffers.coefficients);
  });
  with_storage(dims.dtype, [&]<typename T>() {
    apply(dims, static_cast<const T*>(operands.x), buffers.coefficients, static_cast<T*>(operands.y));
  });
}

void batch_norm_backward(const BatchNormDims& dims, const BatchNormBackwardOperands& operands, bool accumulate,
                         std::span<std::byte> workspace) {
  WorkspaceCutter cutter(workspace);
  const Buffers buffers = cut(cutter, dims);
  with_storage(dims.dtype, [&]<typename T>() {
    block_gradients(dims, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x), operands.mean,
                    buffers);
  });
  with_storage(dims.parameter_dtype, [&]<typename P>() {
    with_storage(dims.gradient_dtype, [&]<typename G>() {
      join_gradients(dims, buffers, static_cast<const P*>(operands.gamma), operands.inverse_deviation,
                     static_cast<G*>(operands.dgamma), static_cast<G*>(operands.dbeta), accumulate);
    });
  });
  with_storage(dims.dtype, [&]<typename T>() {
    apply_gradient(dims, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x), operands.mean,
                   buffers.coefficients, static_cast<T*>(operands.dx));
  });
}

}  // namespace strata::cpu
