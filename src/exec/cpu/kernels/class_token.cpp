/// @file
/// Threads share out rows of y; of the parameters' gradients, positions, whose sums over images one thread makes.

#include "exec/cpu/kernels/class_token.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/error.hpp"
#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

namespace {

void check(const ClassTokenDims& dims) {
  STRATA_INVARIANT(dims.images > 0 && dims.positions > 0 && dims.channels > 0,
                   fmt::format("a class token before {} x {} rows of {}", dims.images, dims.positions, dims.channels));
}

template <typename T>
void copy_row(const T* from, T* to, std::int64_t width) {
  std::memcpy(static_cast<void*>(to), from, sizeof(T) * static_cast<std::size_t>(width));
}

/// sum[channels] (+)= row number @p row of dy, over all images.
template <typename T, typename G>
void sum_over_images(const ClassTokenDims& dims, const T* dy, std::int64_t row, G* sum, bool accumulate) {
  const std::int64_t image = (dims.positions + 1) * dims.channels;
  for_lanes(dims.channels, [&](std::int64_t i, auto lanes) {
    F32x16 total{};
    for (std::int64_t n = 0; n < dims.images; ++n) total += load(dy + n * image + row * dims.channels + i, lanes);
    if (accumulate) total += load(sum + i, lanes);
    store(sum + i, total, lanes);
  });
}

}  // namespace

void class_token_forward(const ClassTokenDims& dims, const void* x, const void* token, const void* positions, void* y) {
  check(dims);
  with_storage(dims.dtype, [&]<typename T>() {
    const auto* const image_rows = static_cast<const T*>(x);
    const auto* const position_rows = static_cast<const T*>(positions);
    const std::int64_t tokens = dims.positions + 1;
    const std::int64_t channels = dims.channels;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < dims.images * tokens; ++row) {
      const std::int64_t position = row % tokens;
      const T* const from = position == 0 ? static_cast<const T*>(token)
                                          : image_rows + (row / tokens * dims.positions + position - 1) * channels;
      const T* const added = position_rows + position * channels;
      T* const to = static_cast<T*>(y) + row * channels;
      for_lanes(channels, [=](std::int64_t i, auto lanes) {
        store(to + i, load(from + i, lanes) + load(added + i, lanes), lanes);
      });
    }
  });
}

void class_token_backward(const ClassTokenDims& dims, const ClassTokenBackwardOperands& operands,
                          const ClassTokenAccumulate& accumulate) {
  check(dims);
  with_storage(dims.dtype, [&]<typename T>() {
    with_storage(dims.gradient_dtype, [&]<typename G>() {
      const auto* const dy = static_cast<const T*>(operands.dy);
      auto* const dx = static_cast<T*>(operands.dx);
      const std::int64_t image = dims.positions * dims.channels;
#pragma omp parallel for schedule(static)
      for (std::int64_t n = 0; n < dims.images; ++n) {
        copy_row(dy + n * (image + dims.channels) + dims.channels, dx + n * image, image);
      }
#pragma omp parallel for schedule(static)
      for (std::int64_t row = 0; row <= dims.positions; ++row) {
        sum_over_images(dims, dy, row, static_cast<G*>(operands.dpositions) + row * dims.channels,
                        accumulate.positions);
      }
      sum_over_images(dims, dy, 0, static_cast<G*>(operands.dtoken), accumulate.token);
    });
  });
}

void first_row_forward(const FirstRowDims& dims, const void* x, void* y) {
  with_storage(dims.dtype, [&]<typename T>() {
    for (std::int64_t n = 0; n < dims.samples; ++n) {
      copy_row(static_cast<const T*>(x) + n * dims.sequence * dims.width, static_cast<T*>(y) + n * dims.width,
               dims.width);
    }
  });
}

void first_row_backward(const FirstRowDims& dims, const void* dy, void* dx) {
  with_storage(dims.dtype, [&]<typename T>() {
    const std::int64_t sample = dims.sequence * dims.width;
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < dims.samples; ++n) {
      T* const rows = static_cast<T*>(dx) + n * sample;
      copy_row(static_cast<const T*>(dy) + n * dims.width, rows, dims.width);
      std::memset(static_cast<void*>(rows + dims.width), 0, sizeof(T) * static_cast<std::size_t>(sample - dims.width));
    }
  });
}

}  // namespace strata::cpu
