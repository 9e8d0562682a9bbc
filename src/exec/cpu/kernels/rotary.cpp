/// @file
/// Positions are shared out over threads. The angles of a position are used for every sample and head before the next
/// ones are computed, so they cost a few percent and need no table.

#include "exec/cpu/kernels/rotary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t chunk_pairs = 128;  // pairs whose angles are held at a time: a whole head of up to 256

void check(const RotaryDims& dims, ConstTokenRows x, TokenRows y) {
  STRATA_INVARIANT(dims.head_dim > 0 && dims.head_dim % 2 == 0,
                   fmt::format("rotary embedding of {} elements a head: an even number is needed", dims.head_dim));
  STRATA_INVARIANT(
      dims.batch >= 0 && dims.seq >= 0 && dims.num_heads >= 0 && dims.num_copied_heads >= 0 &&
          dims.first_position >= 0 && dims.theta > 0.0,
      fmt::format("rotary embedding: batch {}, seq {}, heads {} + {}, first position {}, theta {}", dims.batch,
                  dims.seq, dims.num_heads, dims.num_copied_heads, dims.first_position, dims.theta));
  const std::int64_t row = (dims.num_heads + dims.num_copied_heads) * dims.head_dim;
  STRATA_INVARIANT(x.row_stride >= row && y.row_stride >= row,
                   fmt::format("rotary rows of {} elements with strides {} and {}", row, x.row_stride, y.row_stride));
  STRATA_INVARIANT(x.data != y.data || x.row_stride == y.row_stride, "rotary in place with two strides");
}

/// Turns `count` pairs of one head. x may be y.
template <typename T>
void rotate_head(std::int64_t count, std::int64_t half, const float* cosine, const float* sine, const T* x, T* y) {
  for_lanes(count, [&](std::int64_t i, auto lanes) {
    const F32x16 c = load(cosine + i, lanes);
    const F32x16 s = load(sine + i, lanes);
    const F32x16 first = load(x + i, lanes);
    const F32x16 second = load(x + half + i, lanes);
    store(y + i, first * c - second * s, lanes);
    store(y + half + i, second * c + first * s, lanes);
  });
}

/// @param direction +1 or -1: the sign of every angle.
template <typename T>
void rotate(const RotaryDims& dims, ConstTokenRows x, TokenRows y, double direction) {
  const T* const from = static_cast<const T*>(x.data);
  T* const to = static_cast<T*>(y.data);
  const std::int64_t half = dims.head_dim / 2;
  const std::int64_t rotated = dims.num_heads * dims.head_dim;
#pragma omp parallel
  {
    double frequency[chunk_pairs];
    alignas(64) float cosine[chunk_pairs];
    alignas(64) float sine[chunk_pairs];
    for (std::int64_t begin = 0; begin < half; begin += chunk_pairs) {
      const std::int64_t count = std::min(chunk_pairs, half - begin);
      for (std::int64_t i = 0; i < count; ++i) {
        frequency[i] = std::pow(dims.theta, -2.0 * static_cast<double>(begin + i) / static_cast<double>(dims.head_dim));
      }
#pragma omp for schedule(static)
      for (std::int64_t t = 0; t < dims.seq; ++t) {
        for (std::int64_t i = 0; i < count; ++i) {
          const double angle = static_cast<double>(dims.first_position + t) * frequency[i];
          cosine[i] = static_cast<float>(std::cos(angle));
          sine[i] = static_cast<float>(direction * std::sin(angle));
        }
        for (std::int64_t sample = 0; sample < dims.batch; ++sample) {
          const T* const x_row = from + (sample * dims.seq + t) * x.row_stride;
          T* const y_row = to + (sample * dims.seq + t) * y.row_stride;
          for (std::int64_t head = 0; head < dims.num_heads; ++head) {
            const std::int64_t offset = head * dims.head_dim + begin;
            rotate_head(count, half, cosine, sine, x_row + offset, y_row + offset);
          }
          if (begin == 0 && x_row != y_row) {
            std::copy_n(x_row + rotated, dims.num_copied_heads * dims.head_dim, y_row + rotated);
          }
        }
      }
    }
  }
}

}  // namespace

void rotary_forward(const RotaryDims& dims, ConstTokenRows x, TokenRows y) {
  check(dims, x, y);
  with_storage(dims.dtype, [&]<typename T>() { rotate<T>(dims, x, y, 1.0); });
}

void rotary_backward(const RotaryDims& dims, ConstTokenRows dy, TokenRows dx) {
  check(dims, dy, dx);
  with_storage(dims.dtype, [&]<typename T>() { rotate<T>(dims, dy, dx, -1.0); });
}

}  // namespace strata::cpu
