#include "exec/cpu/kernels/split_rows.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "exec/cpu/kernels/elementary_functions.hpp"
#include "exec/cpu/kernels/row_blocks.hpp"

namespace strata::cpu {
namespace {

constexpr std::int64_t norm_sums = 2;  ///< of backward
constexpr std::int64_t loss_numbers = 3;

struct RowStatistics {
  float mean = 0.0F;
  float scale = 1.0F;  ///< 1 / standard deviation
};

RowStatistics statistics_of(const SplitNormDims& dims, const float* statistics, std::int64_t row) {
  if (dims.rms) return {0.0F, statistics[row]};
  return {statistics[2 * row], statistics[2 * row + 1]};
}

/// The parts of a row in their order (Chan, Golub, LeVeque 1979).
RowStatistics combined(const SplitNormDims& dims, const float* all, std::int64_t row) {
  double count = 0.0, mean = 0.0, deviations = 0.0;
  for (std::int64_t part = 0; part < dims.parts; ++part) {
    const float* numbers = all + (part * dims.rows + row) * dims.statistics();
    const auto width = static_cast<double>(dims.features > 0 ? static_cast<std::int64_t>(numbers[2]) : dims.width);
    if (width == 0.0) continue;
    const double difference = static_cast<double>(numbers[0]) - mean;
    const double total = count + width;
    deviations += static_cast<double>(numbers[1]) + difference * difference * count * width / total;
    mean += difference * width / total;
    count = total;
  }
  return {static_cast<float>(mean), 1.0F / std::sqrt(static_cast<float>(deviations / count) + dims.epsilon)};
}

template <typename T>
void partial_of_rows(const SplitNormDims& dims, const T* x, float* partial) {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const T* line = x + row * dims.width;
    float mean = 0.0F;
    if (!dims.rms && dims.width > 0) {
      F32x16 sum{};
      for_lanes(dims.width, [&](std::int64_t i, auto lanes) { sum += load(line + i, lanes); });
      mean = sum_lanes(sum) / static_cast<float>(dims.width);
    }
    F32x16 squares{};
    for_lanes(dims.width, [&](std::int64_t i, auto lanes) {
      const F32x16 v = keep(load(line + i, lanes) - mean, 0.0F, lanes);
      squares += v * v;
    });
    float* numbers = partial + row * dims.statistics();
    numbers[0] = mean;
    numbers[1] = sum_lanes(squares);
    if (dims.features > 0) numbers[2] = static_cast<float>(dims.width);
  }
}

template <typename T>
void apply_to_rows(const SplitNormDims& dims, const T* x, const float* all, const T* weight, const T* bias, T* y,
                   float* statistics) {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const auto [mean, scale] = combined(dims, all, row);
    const T* from = x + row * dims.width;
    T* to = y + row * dims.width;
    for_lanes(dims.width, [&](std::int64_t i, auto lanes) {
      F32x16 v = (load(from + i, lanes) - mean) * scale * load(weight + i, lanes);
      if (bias != nullptr) v += load(bias + i, lanes);
      store(to + i, v, lanes);
    });
    if (dims.rms) {
      statistics[row] = scale;
    } else {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = scale;
    }
  }
}

template <typename T>
void backward_partial_of_rows(const SplitNormDims& dims, const T* dy, const T* x, const T* weight,
                              const float* statistics, float* partial, float* sums) {
  const std::int64_t width = dims.width;
  const RowBlocks blocks{dims.rows};
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < blocks.num_blocks(); ++block) {
    float* dweight = sums + block * 2 * width;
    float* dbias = dweight + width;
    std::memset(dweight, 0, sizeof(float) * static_cast<std::size_t>(2 * width));
    for (std::int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      const T* dy_row = dy + row * width;
      const T* x_row = x + row * width;
      const auto [mean, scale] = statistics_of(dims, statistics, row);
      F32x16 sum_g{}, sum_gx{};
      for_lanes(width, [&](std::int64_t i, auto lanes) {
        const F32x16 d = load(dy_row + i, lanes);
        const F32x16 normalised = (load(x_row + i, lanes) - mean) * scale;
        const F32x16 g = keep(d * load(weight + i, lanes), 0.0F, lanes);
        sum_g += g;
        sum_gx += keep(g * normalised, 0.0F, lanes);
        store(dweight + i, load(dweight + i, lanes) + d * normalised, lanes);
        store(dbias + i, load(dbias + i, lanes) + d, lanes);
      });
      partial[row * norm_sums] = sum_lanes(sum_g);
      partial[row * norm_sums + 1] = sum_lanes(sum_gx);
    }
  }
}

template <typename T>
void backward_of_rows(const SplitNormDims& dims, const T* dy, const T* x, const T* weight, const float* statistics,
                      const float* all, T* dx, bool accumulate) {
  const std::int64_t width = dims.width;
  const auto features = static_cast<float>(dims.all_features());
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    float sum_g = 0.0F, sum_gx = 0.0F;
    for (std::int64_t part = 0; part < dims.parts; ++part) {
      const float* numbers = all + (part * dims.rows + row) * norm_sums;
      sum_g += numbers[0];
      sum_gx += numbers[1];
    }
    const float mean_g = dims.rms ? 0.0F : sum_g / features;
    const float mean_gx = sum_gx / features;
    const auto [mean, scale] = statistics_of(dims, statistics, row);
    const T* dy_row = dy + row * width;
    const T* x_row = x + row * width;
    T* dx_row = dx + row * width;
    for_lanes(width, [&](std::int64_t i, auto lanes) {
      const F32x16 normalised = (load(x_row + i, lanes) - mean) * scale;
      const F32x16 g = load(dy_row + i, lanes) * load(weight + i, lanes);
      F32x16 d = scale * (g - mean_g - normalised * mean_gx);
      if (accumulate) d += load(dx_row + i, lanes);
      store(dx_row + i, d, lanes);
    });
  }
}

/// Index of a row's target among this rank's classes; -1: it is another rank's, or ignored.
std::int64_t target_here(const SplitCrossEntropyDims& dims, const std::int32_t* targets, std::int64_t row) {
  if (targets[row] == ignored_target) return -1;
  return dims.held.index_of(targets[row]);
}

template <typename T>
void loss_partial_of_rows(const SplitCrossEntropyDims& dims, const T* logits, const std::int32_t* targets,
                          float* partial) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    const T* line = logits + row * dims.classes;
    F32x16 highest = broadcast(lowest);
    for_lanes(dims.classes, [&](std::int64_t i, auto lanes) {
      highest = maximum(keep(load(line + i, lanes), lowest, lanes), highest);
    });
    const float above = max_lanes(highest);
    F32x16 sum{};
    for_lanes(dims.classes, [&](std::int64_t i, auto lanes) {
      sum += keep(exponential_of_negative(load(line + i, lanes) - above), 0.0F, lanes);
    });
    const std::int64_t target = target_here(dims, targets, row);
    float* numbers = partial + row * loss_numbers;
    numbers[0] = above;
    numbers[1] = sum_lanes(sum);
    numbers[2] = target >= 0 ? static_cast<float>(line[target]) : 0.0F;
  }
}

template <typename T>
void loss_of_rows(const SplitCrossEntropyDims& dims, T* logits, const std::int32_t* targets, const float* all,
                  float scale, float* loss) {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    T* line = logits + row * dims.classes;
    if (targets[row] == ignored_target) {
      loss[row] = 0.0F;
      for_lanes(dims.classes, [&](std::int64_t i, auto lanes) { store(line + i, F32x16{}, lanes); });
      continue;
    }
    const auto numbers_of = [&](std::int64_t part) { return all + (part * dims.rows + row) * loss_numbers; };
    float highest = numbers_of(0)[0];
    for (std::int64_t part = 1; part < dims.parts; ++part) highest = std::max(highest, numbers_of(part)[0]);
    float sum = 0.0F, logit = 0.0F;
    for (std::int64_t part = 0; part < dims.parts; ++part) {
      const float* numbers = numbers_of(part);
      sum += numbers[1] * std::exp(numbers[0] - highest);
      logit += numbers[2];
    }
    const float distance = highest - logit;
    loss[row] = std::log(sum) + distance;
    const float factor = scale / sum;
    for_lanes(dims.classes, [=](std::int64_t i, auto lanes) {
      store(line + i, exponential_of_negative(load(line + i, lanes) - highest) * factor, lanes);
    });
    const std::int64_t target = target_here(dims, targets, row);
    if (target >= 0) line[target] = T((std::exp(-distance) / sum - 1.0F) * scale);  // rounded once
  }
}

}  // namespace

void norm_partial(const SplitNormDims& dims, const void* x, float* partial) {
  with_storage(dims.dtype, [&]<typename T>() { partial_of_rows(dims, static_cast<const T*>(x), partial); });
}

void norm_apply(const SplitNormDims& dims, const NormApplyOperands& operands) {
  with_storage(dims.dtype, [&]<typename T>() {
    apply_to_rows(dims, static_cast<const T*>(operands.x), operands.all, static_cast<const T*>(operands.weight),
                  static_cast<const T*>(operands.bias), static_cast<T*>(operands.y), operands.statistics);
  });
}

std::int64_t norm_backward_partial_workspace_bytes(const SplitNormDims& dims) {
  return RowBlocks{dims.rows}.workspace_bytes(2 * dims.width);
}

void norm_backward_partial(const SplitNormDims& dims, const NormBackwardPartialOperands& operands, bool accumulate,
                           std::span<std::byte> workspace) {
  require_workspace(workspace, norm_backward_partial_workspace_bytes(dims), "norm_backward_partial");
  auto* sums = reinterpret_cast<float*>(workspace.data());
  with_storage(dims.dtype, [&]<typename T>() {
    backward_partial_of_rows(dims, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
                             static_cast<const T*>(operands.weight), operands.statistics, operands.partial, sums);
  });
  with_storage(dims.gradient_dtype, [&]<typename G>() {
    const RowBlocks blocks{dims.rows};
    add_row_blocks(blocks, sums, 2 * dims.width, dims.width, static_cast<G*>(operands.dweight), accumulate);
    if (operands.dbias != nullptr) {
      add_row_blocks(blocks, sums + dims.width, 2 * dims.width, dims.width, static_cast<G*>(operands.dbias),
                     accumulate);
    }
  });
}

void norm_backward_apply(const SplitNormDims& dims, const NormBackwardApplyOperands& operands, bool accumulate) {
  with_storage(dims.dtype, [&]<typename T>() {
    backward_of_rows(dims, static_cast<const T*>(operands.dy), static_cast<const T*>(operands.x),
                     static_cast<const T*>(operands.weight), operands.statistics, operands.all,
                     static_cast<T*>(operands.dx), accumulate);
  });
}

void cross_entropy_partial(const SplitCrossEntropyDims& dims, const void* logits, const std::int32_t* targets,
                           float* partial) {
  with_storage(dims.dtype,
               [&]<typename T>() { loss_partial_of_rows(dims, static_cast<const T*>(logits), targets, partial); });
}

void cross_entropy_apply(const SplitCrossEntropyDims& dims, void* logits, const std::int32_t* targets, const float* all,
                         float scale, float* loss) {
  with_storage(dims.dtype,
               [&]<typename T>() { loss_of_rows(dims, static_cast<T*>(logits), targets, all, scale, loss); });
}

}  // namespace strata::cpu
