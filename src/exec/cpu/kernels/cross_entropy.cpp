/// @file
/// Cross-entropy, a row at a time: maximum, sum of exponentials, gradient. The first pass brings the row into the
/// second-level cache (200 KB in f32 for GPT-2's vocabulary), so memory is read once and written once.

#include "exec/cpu/kernels/cross_entropy.hpp"

#include <cmath>
#include <limits>

#include "exec/cpu/kernels/elementary_functions.hpp"
#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {

namespace {

void check(const CrossEntropyDims& dims, const std::int32_t* targets) {
  STRATA_INVARIANT(dims.row_stride == 0 || dims.row_stride >= dims.classes,
                   fmt::format("rows of {} classes {} elements apart", dims.classes, dims.row_stride));
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    STRATA_INVARIANT(targets[row] == ignored_target || (targets[row] >= 0 && targets[row] < dims.classes),
                     fmt::format("target {} at row {} with {} classes", targets[row], row, dims.classes));
  }
}

template <typename T>
float row_maximum(const T* logits, std::int64_t n) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  F32x16 highest = broadcast(lowest);
  for_lanes(
      n, [&](std::int64_t i, auto lanes) { highest = maximum(keep(load(logits + i, lanes), lowest, lanes), highest); });
  return max_lanes(highest);
}

/// Σ exp(logits - shift). Chunks are summed on their own, so that rounding grows with the square root of neither n but
/// of n/256.
template <typename T>
float sum_of_exponentials(const T* logits, std::int64_t n, float shift) {
  F32x16 total{};
  for (std::int64_t begin = 0; begin < n; begin += chunk_elements) {
    F32x16 sum{};
    for_lanes(std::min(chunk_elements, n - begin), [&](std::int64_t i, auto lanes) {
      sum += keep(exponential_of_negative(load(logits + begin + i, lanes) - shift), 0.0F, lanes);
    });
    total += sum;
  }
  return sum_lanes(total);
}

template <typename T>
void loss_of_rows(const CrossEntropyDims& dims, const T* logits, const std::int32_t* targets, float* loss) {
  const std::int64_t stride = dims.row_stride == 0 ? dims.classes : dims.row_stride;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    if (targets[row] == ignored_target) {
      loss[row] = 0.0F;
      continue;
    }
    const T* line = logits + row * stride;
    const float highest = row_maximum(line, dims.classes);
    loss[row] =
        std::log(sum_of_exponentials(line, dims.classes, highest)) + (highest - static_cast<float>(line[targets[row]]));
  }
}

template <typename T>
void gradient_of_rows(const CrossEntropyDims& dims, T* logits, const std::int32_t* targets, float scale, float* loss) {
  const std::int64_t stride = dims.row_stride == 0 ? dims.classes : dims.row_stride;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < dims.rows; ++row) {
    T* line = logits + row * stride;
    if (targets[row] == ignored_target) {
      loss[row] = 0.0F;
      for_lanes(dims.classes, [&](std::int64_t i, auto lanes) { store(line + i, F32x16{}, lanes); });
      continue;
    }
    const float highest = row_maximum(line, dims.classes);
    const float sum = sum_of_exponentials(line, dims.classes, highest);
    const float distance = highest - static_cast<float>(line[targets[row]]);
    loss[row] = std::log(sum) + distance;
    const float factor = scale / sum;
    for_lanes(dims.classes, [=](std::int64_t i, auto lanes) {
      store(line + i, exponential_of_negative(load(line + i, lanes) - highest) * factor, lanes);
    });
    line[targets[row]] = T((std::exp(-distance) / sum - 1.0F) * scale);  // rounded once, not after the softmax again
  }
}

}  // namespace

void cross_entropy_forward(const CrossEntropyDims& dims, const void* logits, const std::int32_t* targets, float* loss) {
  check(dims, targets);
  with_storage(dims.dtype, [&]<typename T>() { loss_of_rows(dims, static_cast<const T*>(logits), targets, loss); });
}

void cross_entropy_gradient(const CrossEntropyDims& dims, void* logits, const std::int32_t* targets, float scale,
                            float* loss) {
  check(dims, targets);
  with_storage(dims.dtype,
               [&]<typename T>() { gradient_of_rows(dims, static_cast<T*>(logits), targets, scale, loss); });
}

}  // namespace strata::cpu
