/// @file
/// Flat tensors. Sums are cut into at most 64 parts by the number of elements, whatever the threads, and the parts are
/// added in order.

#include "exec/cpu/kernels/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/cpu/kernels/map.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t max_parts = 64;

/// Σ over chunks of chunk_sum(begin, count) in double, in a fixed order.
template <typename ChunkSum>
double sum_chunks(std::int64_t n, ChunkSum&& chunk_sum) {
  const std::int64_t num_chunks = (n + chunk_elements - 1) / chunk_elements;
  const std::int64_t part_chunks = (num_chunks + max_parts - 1) / max_parts;
  double parts[max_parts] = {};
#pragma omp parallel for schedule(static) if (num_chunks > 4)
  for (std::int64_t part = 0; part < max_parts; ++part) {
    for (std::int64_t chunk = part * part_chunks; chunk < std::min(num_chunks, (part + 1) * part_chunks); ++chunk) {
      const std::int64_t begin = chunk * chunk_elements;
      parts[part] += chunk_sum(begin, std::min(chunk_elements, n - begin));
    }
  }
  double total = 0.0;
  for (const double part : parts) {
    total += part;
  }
  return total;
}

}  // namespace

void fill(DType dtype, void* y, std::int64_t n, float value) {
  if (n == 0) return;
  with_storage(dtype, [&]<typename T>() {
    auto* out = static_cast<T*>(y);
    for_chunks(n, [=](std::int64_t begin, std::int64_t count) { std::fill_n(out + begin, count, T(value)); });
  });
}

void copy(DType dtype, const void* x, void* y, std::int64_t n) {
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  for_chunks(n * size_of(dtype), [=](std::int64_t begin, std::int64_t count) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(count));
  });
}

void cast(DType from, const void* x, DType to, void* y, std::int64_t n) {
  if (from == to) {
    copy(from, x, y, n);
    return;
  }
  with_storage(from, [&]<typename X>() {
    with_storage(
        to, [&]<typename Y>() { map(static_cast<const X*>(x), static_cast<Y*>(y), n, [](F32x16 v) { return v; }); });
  });
}

void scale(DType dtype, void* y, std::int64_t n, float factor) {
  with_storage(dtype, [&]<typename T>() {
    map(static_cast<const T*>(y), static_cast<T*>(y), n, [factor](F32x16 v) { return v * factor; });
  });
}

void accumulate(DType x_dtype, const void* x, DType y_dtype, void* y, std::int64_t n) {
  with_storage(x_dtype, [&]<typename X>() {
    with_storage(y_dtype, [&]<typename Y>() {
      map(static_cast<const X*>(x), static_cast<const Y*>(y), static_cast<Y*>(y), n,
          [](F32x16 u, F32x16 v) { return u + v; });
    });
  });
}

void sum(const float* x, std::int64_t n, float scale, float* sum, bool accumulate) {
  const double total = sum_chunks(n, [=](std::int64_t begin, std::int64_t count) {
    double chunk = 0.0;
    for (std::int64_t i = begin; i < begin + count; ++i) {
      chunk += static_cast<double>(x[i]);
    }
    return chunk;
  });
  *sum = static_cast<float>((accumulate ? static_cast<double>(*sum) : 0.0) + static_cast<double>(scale) * total);
}

void sum_of_squares(DType dtype, const void* x, std::int64_t n, float* sum, bool accumulate) {
  double total = 0.0;
  with_storage(dtype, [&]<typename T>() {
    const auto* values = static_cast<const T*>(x);
    total = sum_chunks(n, [=](std::int64_t begin, std::int64_t count) {
      F32x16 squares{};
      for_lanes(count, [&](std::int64_t i, auto lanes) {
        const F32x16 v = load(values + begin + i, lanes);
        squares += v * v;
      });
      return static_cast<double>(sum_lanes(squares));
    });
  });
  *sum = static_cast<float>((accumulate ? static_cast<double>(*sum) : 0.0) + total);
}

void clip_factor(float sum_of_squares, float clip_norm, float* factor, float* norm) {
  const float length = std::sqrt(sum_of_squares);
  const float ratio = clip_norm / (length + 1e-6F);
  *factor = ratio > 1.0F ? 1.0F : ratio;  // NaN stays NaN: a broken gradient must show
  if (norm != nullptr) {
    *norm = length;
  }
}

}  // namespace strata::cpu
