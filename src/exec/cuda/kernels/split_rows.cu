/// @file
/// A block of threads a row, or, where parameter gradients are summed, a block of rows; eight columns a thread and
/// turn.

#include "exec/cuda/kernels/column_sums.cuh"
#include "exec/cuda/kernels/split_rows.hpp"

namespace strata::cuda {
namespace {

constexpr unsigned row_threads = 256;
constexpr std::int64_t norm_sums = 2;  ///< of backward
constexpr std::int64_t loss_numbers = 3;

unsigned row_grid(std::int64_t rows) { return static_cast<unsigned>(std::min<std::int64_t>(rows, 1 << 20)); }

/// Calls body(i) for the first column of every pack of a row that is this thread's.
template <typename Body>
__device__ void for_packs(std::int64_t width, Body body) {
  for (std::int64_t i = threadIdx.x * pack; i < width; i += blockDim.x * pack) body(i);
}

template <typename T>
__global__ void norm_partial_kernel(SplitNormDims d, const T* x, bool aligned, float* partial) {
  float v[pack];
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    const T* const line = x + row * d.width;
    float mean = 0.0F;
    if (!d.rms && d.width > 0) {
      float sum = 0.0F;
      for_packs(d.width, [&](std::int64_t i) {
        load_some(line + i, d.width - i, aligned, v);
        for (const float value : v) sum += value;
      });
      mean = block_sum(sum) / static_cast<float>(d.width);
    }
    float squares = 0.0F;
    for_packs(d.width, [&](std::int64_t i) {
      load_some(line + i, d.width - i, aligned, v);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        const float deviation = i + k < d.width ? v[k] - mean : 0.0F;
        squares += deviation * deviation;
      }
    });
    squares = block_sum(squares);
    if (threadIdx.x == 0) {
      float* const numbers = partial + row * d.statistics();
      numbers[0] = mean;
      numbers[1] = squares;
      if (d.features > 0) numbers[2] = static_cast<float>(d.width);
    }
  }
}

struct RowStatistics {
  float mean;
  float scale;  ///< 1 / standard deviation
};

__device__ RowStatistics statistics_of(const SplitNormDims& d, const float* statistics, std::int64_t row) {
  if (d.rms) return {0.0F, statistics[row]};
  return {statistics[2 * row], statistics[2 * row + 1]};
}

/// The parts of a row in their order (Chan, Golub, LeVeque 1979).
__device__ RowStatistics combined(const SplitNormDims& d, const float* all, std::int64_t row) {
  double count = 0.0;
  double mean = 0.0;
  double deviations = 0.0;
  for (std::int64_t part = 0; part < d.parts; ++part) {
    const float* const numbers = all + (part * d.rows + row) * d.statistics();
    const auto width = static_cast<double>(d.features > 0 ? static_cast<std::int64_t>(numbers[2]) : d.width);
    if (width == 0.0) continue;
    const double difference = static_cast<double>(numbers[0]) - mean;
    const double total = count + width;
    deviations += static_cast<double>(numbers[1]) + difference * difference * count * width / total;
    mean += difference * width / total;
    count = total;
  }
  return {static_cast<float>(mean), 1.0F / sqrtf(static_cast<float>(deviations / count) + d.epsilon)};
}

template <typename T>
__global__ void norm_apply_kernel(SplitNormDims d, const T* x, const float* all, const T* weight, const T* bias, T* y,
                                  bool aligned, float* statistics) {
  __shared__ RowStatistics of_row;
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    __syncthreads();  // the row before may still be read
    if (threadIdx.x == 0) {
      of_row = combined(d, all, row);
      if (d.rms) {
        statistics[row] = of_row.scale;
      } else {
        statistics[2 * row] = of_row.mean;
        statistics[2 * row + 1] = of_row.scale;
      }
    }
    __syncthreads();
    const RowStatistics s = of_row;
    for_packs(d.width, [&](std::int64_t i) {
      float v[pack];
      float factors[pack];
      float added[pack] = {};
      load_some(x + row * d.width + i, d.width - i, aligned, v);
      load_some(weight + i, d.width - i, aligned, factors);
      if (bias != nullptr) load_some(bias + i, d.width - i, aligned, added);
#pragma unroll
      for (int k = 0; k < pack; ++k) v[k] = (v[k] - s.mean) * s.scale * factors[k] + added[k];
      store_some(y + row * d.width + i, d.width - i, aligned, v);
    });
  }
}

/// The parameters' gradients of a block of rows stand in shared memory, packs apart by element, so that neighbouring
/// threads use neighbouring banks.
/// @param partials [blocks, 2, width], rms: [blocks, width]: sums of dy·x̂, then of dy.
template <bool rms, typename T>
__global__ void norm_backward_partial_kernel(SplitNormDims d, const T* dy, const T* x, const T* weight,
                                             const float* statistics, bool aligned, float* partial, float* partials) {
  extern __shared__ float shared_sums[];
  const std::int64_t packs = (d.width + pack - 1) / pack;
  float* const dweight = shared_sums;
  float* const dbias = shared_sums + packs * pack;  // not rms
  // A thread touches its own packs of the shared sums alone, so nothing but block_sum synchronises.
  for_packs(d.width, [&](std::int64_t i) {
    for (int k = 0; k < pack; ++k) {
      dweight[k * packs + i / pack] = 0.0F;
      if constexpr (!rms) dbias[k * packs + i / pack] = 0.0F;
    }
  });
  const std::int64_t end = row_block_begin(d.rows, std::int64_t{blockIdx.x} + 1);
  for (std::int64_t row = row_block_begin(d.rows, blockIdx.x); row < end; ++row) {
    const RowStatistics of_row = statistics_of(d, statistics, row);
    float sum_g = 0.0F;
    float sum_gx = 0.0F;
    for_packs(d.width, [&](std::int64_t i) {
      float gradients[pack];
      float v[pack];
      float factors[pack];
      load_some(dy + row * d.width + i, d.width - i, aligned, gradients);
      load_some(x + row * d.width + i, d.width - i, aligned, v);
      load_some(weight + i, d.width - i, aligned, factors);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        const float normalised = (v[k] - of_row.mean) * of_row.scale;
        const float g = gradients[k] * factors[k];
        sum_g += g;
        sum_gx += g * normalised;
        dweight[k * packs + i / pack] += gradients[k] * normalised;
        if constexpr (!rms) dbias[k * packs + i / pack] += gradients[k];
      }
    });
    sum_g = block_sum(sum_g);
    sum_gx = block_sum(sum_gx);
    if (threadIdx.x == 0) {
      partial[row * norm_sums] = sum_g;
      partial[row * norm_sums + 1] = sum_gx;
    }
  }
  float* const line = partials + std::int64_t{blockIdx.x} * (rms ? 1 : 2) * d.width;
  for_packs(d.width, [&](std::int64_t i) {
    for (int k = 0; k < min(std::int64_t{pack}, d.width - i); ++k) {
      line[i + k] = dweight[k * packs + i / pack];
      if constexpr (!rms) line[d.width + i + k] = dbias[k * packs + i / pack];
    }
  });
}

template <typename T>
__global__ void norm_backward_apply_kernel(SplitNormDims d, const T* dy, const T* x, const T* weight,
                                           const float* statistics, const float* all, bool aligned, T* dx,
                                           bool accumulate) {
  const auto features = static_cast<float>(d.all_features());
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    float sum_g = 0.0F;
    float sum_gx = 0.0F;
    for (std::int64_t part = 0; part < d.parts; ++part) {
      const float* const numbers = all + (part * d.rows + row) * norm_sums;
      sum_g += numbers[0];
      sum_gx += numbers[1];
    }
    const float mean_g = d.rms ? 0.0F : sum_g / features;
    const float mean_gx = sum_gx / features;
    const RowStatistics of_row = statistics_of(d, statistics, row);
    for_packs(d.width, [&](std::int64_t i) {
      const std::int64_t at = row * d.width + i;
      float gradients[pack];
      float v[pack];
      float factors[pack];
      float before[pack] = {};
      load_some(dy + at, d.width - i, aligned, gradients);
      load_some(x + at, d.width - i, aligned, v);
      load_some(weight + i, d.width - i, aligned, factors);
      if (accumulate) load_some(dx + at, d.width - i, aligned, before);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        const float normalised = (v[k] - of_row.mean) * of_row.scale;
        v[k] = of_row.scale * (gradients[k] * factors[k] - mean_g - normalised * mean_gx) + before[k];
      }
      store_some(dx + at, d.width - i, aligned, v);
    });
  }
}

/// Index of a row's target among this rank's classes; -1: it is another rank's, or ignored.
__device__ std::int64_t target_here(const SplitCrossEntropyDims& d, std::int32_t target) {
  return target == ignored_target ? -1 : d.held.index_of(target);
}

template <typename T>
__global__ void cross_entropy_partial_kernel(SplitCrossEntropyDims d, const T* logits, const std::int32_t* targets,
                                             bool aligned, float* partial) {
  float v[pack];
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    const T* const line = logits + row * d.classes;
    float highest = -INFINITY;
    for_packs(d.classes, [&](std::int64_t i) {
      load_some(line + i, d.classes - i, aligned, v);
#pragma unroll
      for (int k = 0; k < pack; ++k) highest = fmaxf(highest, i + k < d.classes ? v[k] : -INFINITY);
    });
    highest = block_join<Maximum>(highest, -INFINITY);
    float sum = 0.0F;
    for_packs(d.classes, [&](std::int64_t i) {
      load_some(line + i, d.classes - i, aligned, v);
#pragma unroll
      for (int k = 0; k < pack; ++k) sum += i + k < d.classes ? expf(v[k] - highest) : 0.0F;
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
      const std::int64_t target = target_here(d, targets[row]);
      float* const numbers = partial + row * loss_numbers;
      numbers[0] = highest;
      numbers[1] = sum;
      numbers[2] = target >= 0 ? to_float(line[target]) : 0.0F;
    }
  }
}

template <typename T>
__global__ void cross_entropy_apply_kernel(SplitCrossEntropyDims d, T* logits, const std::int32_t* targets,
                                           const float* all, float scale, bool aligned, float* loss) {
  float v[pack];
  for (std::int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    T* const line = logits + row * d.classes;
    if (targets[row] == ignored_target) {
      const float zeros[pack] = {};
      for_packs(d.classes, [&](std::int64_t i) { store_some(line + i, d.classes - i, aligned, zeros); });
      if (threadIdx.x == 0) loss[row] = 0.0F;
      continue;
    }
    const auto numbers_of = [&](std::int64_t part) { return all + (part * d.rows + row) * loss_numbers; };
    float highest = numbers_of(0)[0];
    for (std::int64_t part = 1; part < d.parts; ++part) highest = fmaxf(highest, numbers_of(part)[0]);
    float sum = 0.0F;
    float logit = 0.0F;
    for (std::int64_t part = 0; part < d.parts; ++part) {
      const float* const numbers = numbers_of(part);
      sum += numbers[1] * expf(numbers[0] - highest);
      logit += numbers[2];
    }
    const float distance = highest - logit;
    const float factor = scale / sum;
    const std::int64_t target = target_here(d, targets[row]);
    for_packs(d.classes, [&](std::int64_t i) {
      load_some(line + i, d.classes - i, aligned, v);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        v[k] = i + k == target ? (expf(-distance) / sum - 1.0F) * scale : expf(v[k] - highest) * factor;
      }
      store_some(line + i, d.classes - i, aligned, v);
    });
    if (threadIdx.x == 0) loss[row] = logf(sum) + distance;
  }
}

/// Whether packs can be moved in every row of these.
template <typename... Pointers>
bool rows_are_aligned(std::int64_t width, Pointers... pointers) {
  return width % pack == 0 && are_aligned(pointers...);
}

template <bool rms>
void sum_backward(const SplitNormDims& d, const NormBackwardPartialOperands& operands, float* partials,
                  cudaStream_t stream) {
  const std::int64_t packs = (d.width + pack - 1) / pack;
  const std::size_t shared_bytes = sizeof(float) * static_cast<std::size_t>((rms ? 1 : 2) * packs * pack);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = norm_backward_partial_kernel<rms, T>;
    allow_shared_memory(kernel, shared_bytes, "the gradient of a norm");
    kernel<<<static_cast<unsigned>(num_row_blocks(d.rows)), row_threads, shared_bytes, stream>>>(
        d, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
        static_cast<const T*>(operands.weight), operands.statistics,
        rows_are_aligned(d.width, operands.dy, operands.x, operands.weight), operands.partial, partials);
  });
  check_launch("norm_backward_partial");
}

}  // namespace

void norm_partial(const SplitNormDims& d, const void* x, float* partial, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    norm_partial_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(d, static_cast<const decltype(type)*>(x),
                                                                      rows_are_aligned(d.width, x), partial);
  });
  check_launch("norm_partial");
}

void norm_apply(const SplitNormDims& d, const NormApplyOperands& operands, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    norm_apply_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(
        d, static_cast<const T*>(operands.x), operands.all, static_cast<const T*>(operands.weight),
        static_cast<const T*>(operands.bias), static_cast<T*>(operands.y),
        rows_are_aligned(d.width, operands.x, operands.weight, operands.bias, operands.y), operands.statistics);
  });
  check_launch("norm_apply");
}

void norm_backward_partial(const SplitNormDims& d, const NormBackwardPartialOperands& operands, bool accumulate,
                           float* workspace, cudaStream_t stream) {
  if (d.rms) {
    sum_backward<true>(d, operands, workspace, stream);
    join_rows(workspace, d.rows, d.width, d.gradient_dtype, {{operands.dweight, accumulate}}, stream);
    return;
  }
  sum_backward<false>(d, operands, workspace, stream);
  join_rows(workspace, d.rows, d.width, d.gradient_dtype,
            {{operands.dweight, accumulate}, {operands.dbias, accumulate}}, stream);
}

void norm_backward_apply(const SplitNormDims& d, const NormBackwardApplyOperands& operands, bool accumulate,
                         cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    norm_backward_apply_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(
        d, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
        static_cast<const T*>(operands.weight), operands.statistics, operands.all,
        rows_are_aligned(d.width, operands.dy, operands.x, operands.weight, operands.dx), static_cast<T*>(operands.dx),
        accumulate);
  });
  check_launch("norm_backward_apply");
}

void cross_entropy_partial(const SplitCrossEntropyDims& d, const void* logits, const std::int32_t* targets,
                           float* partial, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    cross_entropy_partial_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(
        d, static_cast<const decltype(type)*>(logits), targets, rows_are_aligned(d.classes, logits), partial);
  });
  check_launch("cross_entropy_partial");
}

void cross_entropy_apply(const SplitCrossEntropyDims& d, void* logits, const std::int32_t* targets, const float* all,
                         float scale, float* loss, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    cross_entropy_apply_kernel<<<row_grid(d.rows), row_threads, 0, stream>>>(
        d, static_cast<decltype(type)*>(logits), targets, all, scale, rows_are_aligned(d.classes, logits), loss);
  });
  check_launch("cross_entropy_apply");
}

}  // namespace strata::cuda
