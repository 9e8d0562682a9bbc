/// @file
/// Pooling: a thread an element of what is written, channels next to each other. Backward gathers from the windows that
/// cover an element, in window order.

#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/pooling.hpp"

namespace strata::cuda {
namespace {

template <typename T>
__global__ void max_pool_forward_kernel(MaxPoolDims d, std::int64_t out_height, std::int64_t out_width, const T* x,
                                        T* y, std::uint8_t* indices) {
  const std::int64_t n = d.images * out_height * out_width * d.channels;
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    const std::int64_t channel = i % d.channels;
    const std::int64_t column = i / d.channels % out_width;
    const std::int64_t line = i / d.channels / out_width;  // image · out_height + row
    const std::int64_t top = line % out_height * d.stride - d.padding;
    const std::int64_t left = column * d.stride - d.padding;
    const T* const image = x + line / out_height * d.height * d.width * d.channels + channel;
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
__global__ void max_pool_backward_kernel(MaxPoolDims d, std::int64_t out_height, std::int64_t out_width, const T* dy,
                                         const std::uint8_t* indices, T* dx) {
  // Windows that cover a coordinate: ceil((at + padding - kernel + 1) / stride) .. floor((at + padding) / stride).
  const auto first_window = [&](std::int64_t at) {
    return max(std::int64_t{0}, (at + d.padding - d.kernel + d.stride) / d.stride);
  };
  const auto end_window = [&](std::int64_t at, std::int64_t num) { return min(num, (at + d.padding) / d.stride + 1); };
  const std::int64_t n = d.images * d.height * d.width * d.channels;
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    const std::int64_t channel = i % d.channels;
    const std::int64_t column = i / d.channels % d.width;
    const std::int64_t line = i / d.channels / d.width;
    const std::int64_t row = line % d.height;
    float sum = 0.0F;
    for (std::int64_t h = first_window(row); h < end_window(row, out_height); ++h) {
      for (std::int64_t w = first_window(column); w < end_window(column, out_width); ++w) {
        const std::int64_t out = ((line / d.height * out_height + h) * out_width + w) * d.channels + channel;
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
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t n = d.images * d.out_height() * d.out_width() * d.channels;
    max_pool_forward_kernel<<<flat_blocks(n), flat_threads, 0, stream>>>(
        d, d.out_height(), d.out_width(), static_cast<const T*>(x), static_cast<T*>(y), indices);
  });
  check_launch("max_pool_forward");
}

void max_pool_backward(const MaxPoolDims& d, const void* dy, const std::uint8_t* indices, void* dx,
                       cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t n = d.images * d.height * d.width * d.channels;
    max_pool_backward_kernel<<<flat_blocks(n), flat_threads, 0, stream>>>(
        d, d.out_height(), d.out_width(), static_cast<const T*>(dy), indices, static_cast<T*>(dx));
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
