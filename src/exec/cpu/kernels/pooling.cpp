/// @file
/// Pooling. Threads share out rows of the output (of the input in backward, which gathers instead of scattering: no two
/// threads write one element, and the order of additions is the windows'). Channels are the inner, vectorised loop, in
/// strips that stay in registers and the first-level cache.

#include "exec/cpu/kernels/pooling.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t strip = 64;  // channels at a time

void check(const MaxPoolDims& dims) {
  STRATA_INVARIANT(dims.images > 0 && dims.channels > 0 && dims.stride > 0 && dims.kernel > 0 &&
                       dims.kernel <= (dims.relu ? 15 : 16) && dims.padding >= 0 && dims.padding <= dims.kernel / 2 &&
                       dims.height + 2 * dims.padding >= dims.kernel && dims.width + 2 * dims.padding >= dims.kernel,
                   fmt::format("max pooling of {} x {}x{}x{}, kernel {}, stride {}, padding {}", dims.images,
                               dims.height, dims.width, dims.channels, dims.kernel, dims.stride, dims.padding));
}

template <typename T>
void max_pool_forward_of(const MaxPoolDims& dims, const T* x, T* y, std::uint8_t* indices) {
  const std::int64_t out_height = dims.out_height();
  const std::int64_t out_width = dims.out_width();
#pragma omp parallel for schedule(static)
  for (std::int64_t line = 0; line < dims.images * out_height; ++line) {
    const T* image = x + line / out_height * dims.height * dims.width * dims.channels;
    const std::int64_t top = line % out_height * dims.stride - dims.padding;
    for (std::int64_t column = 0; column < out_width; ++column) {
      const std::int64_t left = column * dims.stride - dims.padding;
      const std::int64_t first_row = std::max<std::int64_t>(0, -top);
      const std::int64_t first_column = std::max<std::int64_t>(0, -left);
      const std::int64_t end_row = std::min(dims.kernel, dims.height - top);
      const std::int64_t end_column = std::min(dims.kernel, dims.width - left);
      const std::int64_t out = (line * out_width + column) * dims.channels;
      for (std::int64_t channel = 0; channel < dims.channels; channel += strip) {
        const std::int64_t count = std::min(strip, dims.channels - channel);
        float best[strip];
        std::int32_t place[strip];
        for (std::int64_t row = first_row; row < end_row; ++row) {
          for (std::int64_t col = first_column; col < end_column; ++col) {
            const T* values = image + ((top + row) * dims.width + left + col) * dims.channels + channel;
            const auto here = static_cast<std::int32_t>(row * dims.kernel + col);
            if (row == first_row && col == first_column) {
              for (std::int64_t i = 0; i < count; ++i) {
                best[i] = static_cast<float>(values[i]);
                place[i] = here;
              }
              continue;
            }
            for (std::int64_t i = 0; i < count; ++i) {
              const auto value = static_cast<float>(values[i]);
              const bool wins = value > best[i] || value != value;  // a NaN is kept: nothing compares greater
              best[i] = wins ? value : best[i];
              place[i] = wins ? here : place[i];
            }
          }
        }
        for (std::int64_t i = 0; i < count; ++i) {
          y[out + channel + i] = T(best[i]);
          const bool has_none = dims.relu && best[i] <= 0.0F;
          indices[out + channel + i] = has_none ? MaxPoolDims::no_place : static_cast<std::uint8_t>(place[i]);
        }
      }
    }
  }
}

template <typename T>
void max_pool_backward_of(const MaxPoolDims& dims, const T* dy, const std::uint8_t* indices, T* dx) {
  const std::int64_t out_height = dims.out_height();
  const std::int64_t out_width = dims.out_width();
  // Windows that cover a coordinate: ceil((at + padding - kernel + 1) / stride) .. floor((at + padding) / stride).
  const auto first_window = [&dims](std::int64_t at) {
    return std::max<std::int64_t>(0, (at + dims.padding - dims.kernel + dims.stride) / dims.stride);
  };
  const auto end_window = [&dims](std::int64_t at, std::int64_t num_windows) {
    return std::min(num_windows, (at + dims.padding) / dims.stride + 1);
  };
#pragma omp parallel for schedule(static)
  for (std::int64_t line = 0; line < dims.images * dims.height; ++line) {
    const std::int64_t image = line / dims.height;
    const std::int64_t row = line % dims.height;
    for (std::int64_t column = 0; column < dims.width; ++column) {
      T* gradient = dx + (line * dims.width + column) * dims.channels;
      for (std::int64_t channel = 0; channel < dims.channels; channel += strip) {
        const std::int64_t count = std::min(strip, dims.channels - channel);
        float sum[strip] = {};
        for (std::int64_t h = first_window(row); h < end_window(row, out_height); ++h) {
          for (std::int64_t w = first_window(column); w < end_window(column, out_width); ++w) {
            const std::int64_t out = ((image * out_height + h) * out_width + w) * dims.channels + channel;
            const auto here = static_cast<std::uint8_t>((row + dims.padding - h * dims.stride) * dims.kernel + column +
                                                        dims.padding - w * dims.stride);
            for (std::int64_t i = 0; i < count; ++i) {
              sum[i] += indices[out + i] == here ? static_cast<float>(dy[out + i]) : 0.0F;
            }
          }
        }
        for (std::int64_t i = 0; i < count; ++i) {
          gradient[channel + i] = T(sum[i]);
        }
      }
    }
  }
}

}  // namespace

std::int64_t max_pool_indices_bytes(const MaxPoolDims& dims) {
  check(dims);
  return dims.images * dims.out_height() * dims.out_width() * dims.channels;
}

void max_pool_forward(const MaxPoolDims& dims, const void* x, void* y, std::uint8_t* indices) {
  check(dims);
  with_storage(dims.dtype,
               [&]<typename T>() { max_pool_forward_of(dims, static_cast<const T*>(x), static_cast<T*>(y), indices); });
}

void max_pool_backward(const MaxPoolDims& dims, const void* dy, const std::uint8_t* indices, void* dx) {
  check(dims);
  with_storage(dims.dtype, [&]<typename T>() {
    max_pool_backward_of(dims, static_cast<const T*>(dy), indices, static_cast<T*>(dx));
  });
}

void average_pool_forward(const AveragePoolDims& dims, const void* x, void* y) {
  with_storage(dims.dtype, [&]<typename T>() {
    const auto* source = static_cast<const T*>(x);
    auto* means = static_cast<T*>(y);
    const std::int64_t num_strips = (dims.channels + strip - 1) / strip;
#pragma omp parallel for schedule(static)
    for (std::int64_t task = 0; task < dims.images * num_strips; ++task) {
      const std::int64_t image = task / num_strips;
      const std::int64_t channel = task % num_strips * strip;
      const std::int64_t count = std::min(strip, dims.channels - channel);
      float sum[strip] = {};
      for (std::int64_t position = 0; position < dims.positions; ++position) {
        const T* values = source + (image * dims.positions + position) * dims.channels + channel;
        for (std::int64_t i = 0; i < count; ++i) {
          sum[i] += static_cast<float>(values[i]);
        }
      }
      for (std::int64_t i = 0; i < count; ++i) {
        means[image * dims.channels + channel + i] = T(sum[i] / static_cast<float>(dims.positions));
      }
    }
  });
}

void average_pool_backward(const AveragePoolDims& dims, const void* dy, void* dx) {
  with_storage(dims.dtype, [&]<typename T>() {
    const auto* source = static_cast<const T*>(dy);
    auto* gradient = static_cast<T*>(dx);
#pragma omp parallel for schedule(static)
    for (std::int64_t line = 0; line < dims.images * dims.positions; ++line) {
      const T* values = source + line / dims.positions * dims.channels;
      for (std::int64_t i = 0; i < dims.channels; ++i) {
        gradient[line * dims.channels + i] = T(static_cast<float>(values[i]) / static_cast<float>(dims.positions));
      }
    }
  });
}

}  // namespace strata::cpu
