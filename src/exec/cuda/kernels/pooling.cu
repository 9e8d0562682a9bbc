/// @file
/// Pooling: a thread an element of what is written, channels next to each other. Backward gathers from the windows that
/// cover an element, in window order.

#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/divisor.cuh"
#include "exec/cuda/kernels/pooling.hpp"

namespace strata::cuda {
namespace {

/// [images, height, width, channels], of which elements are counted in 32 bits.
struct Grid {
  Grid(std::int64_t image_height, std::int64_t image_width, std::int64_t num_channels)
      : channels(num_channels), width(image_width), height(image_height) {}
  struct Place {
    std::int64_t image, row, column, channel;
  };
  __device__ Place place(std::int64_t element) const {
    auto channel = static_cast<std::uint32_t>(element);
    std::uint32_t column = channels.divide(channel);
    std::uint32_t row = width.divide(column);
    const std::uint32_t image = height.divide(row);
    return {image, row, column, channel};
  }
  Divisor channels, width, height;
};

template <typename T>
__global__ void max_pool_forward_kernel(MaxPoolDims d, Grid out, std::int64_t n, const T* x, T* y,
                                        std::uint8_t* indices) {
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    const Grid::Place at = out.place(i);
    const std::int64_t top = at.row * d.stride - d.padding;
    const std::int64_t left = at.column * d.stride - d.padding;
    const T* const image = x + at.image * d.height * d.width * d.channels + at.channel;
    float best = 0.0F;
    std::int64_t place = -1;
    for (std::int64_t r = max(std::int64_t{0}, -top); r < min(d.kernel, d.height - top); ++r) {
      for (std::int64_t c = max(std::int64_t{0}, -left); c < min(d.kernel, d.width - left); ++c) {
        const float value = to_float(image[((top + r) * d.width + left + c) * d.channels]);
        if (place < 0 || value > best || value != value) {  // a NaN is kept: nothing compares greater
          best = value;
          place = r * d.kernel + c;
        }
      }
    }
    y[i] = from_float<T>(best);
    indices[i] = static_cast<std::uint8_t>(place);
  }
}

template <typename T>
__global__ void max_pool_backward_kernel(MaxPoolDims d, Grid in, Divisor stride, std::int64_t out_height,
                                         std::int64_t out_width, const T* dy, const std::uint8_t* indices, T* dx) {
  const auto windows = [&](std::int64_t distance) {
    auto rest = static_cast<std::uint32_t>(distance);
    return std::int64_t{stride.divide(rest)};
  };
  // Windows that cover a coordinate: ceil((at + padding - kernel + 1) / stride) .. floor((at + padding) / stride).
  const auto first_window = [&](std::int64_t at) {
    return windows(max(std::int64_t{0}, at + d.padding - d.kernel + d.stride));
  };
  const auto end_window = [&](std::int64_t at, std::int64_t num) { return min(num, windows(at + d.padding) + 1); };
  const std::int64_t n = d.images * d.height * d.width * d.channels;
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    const auto [image, row, column, channel] = in.place(i);
    const std::int64_t end_row = end_window(row, out_height);
    const std::int64_t first_column = first_window(column);
    const std::int64_t end_column = end_window(column, out_width);
    float sum = 0.0F;
    for (std::int64_t h = first_window(row); h < end_row; ++h) {
      for (std::int64_t w = first_column; w < end_column; ++w) {
        const std::int64_t out = ((image * out_height + h) * out_width + w) * d.channels + channel;
        const std::int64_t here = (row + d.padding - h * d.stride) * d.kernel + column + d.padding - w * d.stride;
        if (indices[out] == here) sum += to_float(dy[out]);
      }
    }
    dx[i] = from_float<T>(sum);
  }
}

template <typename T>
__global__ void average_pool_forward_kernel(AveragePoolDims d, const T* x, T* y) {
  for (std::int64_t i = flat_index(); i < d.images * d.channels; i += flat_stride()) {
    const T* const values = x + i / d.channels * d.positions * d.channels + i % d.channels;
    float sum = 0.0F;
    for (std::int64_t position = 0; position < d.positions; ++position) sum += to_float(values[position * d.channels]);
    y[i] = from_float<T>(sum / static_cast<float>(d.positions));
  }
}

template <typename T>
__global__ void average_pool_backward_kernel(AveragePoolDims d, const T* dy, T* dx) {
  const std::int64_t image = d.positions * d.channels;
  for (std::int64_t i = flat_index(); i < d.images * image; i += flat_stride()) {
    const float gradient = to_float(dy[i / image * d.channels + i % d.channels]);
    dx[i] = from_float<T>(gradient / static_cast<float>(d.positions));
  }
}

}  // namespace

void max_pool_forward(const MaxPoolDims& d, const void* x, void* y, std::uint8_t* indices, cudaStream_t stream) {
  STRATA_INVARIANT(d.kernel > 0 && d.kernel <= 16 && d.padding <= d.kernel / 2, "a place in a window is one byte");
  const std::int64_t n = d.images * d.out_height() * d.out_width() * d.channels;
  check_count(n, "max_pool_forward");
  const Grid out(d.out_height(), d.out_width(), d.channels);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    max_pool_forward_kernel<<<flat_blocks(n), flat_threads, 0, stream>>>(d, out, n, static_cast<const T*>(x),
                                                                         static_cast<T*>(y), indices);
  });
  check_launch("max_pool_forward");
}

void max_pool_backward(const MaxPoolDims& d, const void* dy, const std::uint8_t* indices, void* dx,
                       cudaStream_t stream) {
  const std::int64_t n = d.images * d.height * d.width * d.channels;
  check_count(n, "max_pool_backward");
  const Grid in(d.height, d.width, d.channels);
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    max_pool_backward_kernel<<<flat_blocks(n), flat_threads, 0, stream>>>(d, in, Divisor(d.stride), d.out_height(),
                                                                          d.out_width(), static_cast<const T*>(dy),
                                                                          indices, static_cast<T*>(dx));
  });
  check_launch("max_pool_backward");
}

void average_pool_forward(const AveragePoolDims& d, const void* x, void* y, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    average_pool_forward_kernel<<<flat_blocks(d.images * d.channels), flat_threads, 0, stream>>>(
        d, static_cast<const T*>(x), static_cast<T*>(y));
  });
  check_launch("average_pool_forward");
}

void average_pool_backward(const AveragePoolDims& d, const void* dy, void* dx, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    average_pool_backward_kernel<<<flat_blocks(d.images * d.positions * d.channels), flat_threads, 0, stream>>>(
        d, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
  check_launch("average_pool_backward");
}

}  // namespace strata::cuda
