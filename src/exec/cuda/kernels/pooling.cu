/// @file
/// Pooling: a thread an element of what is written, or eight where channels come in packs, channels next to each other.
/// Backward gathers from the windows that cover an element, in window order.

#include "exec/cuda/kernels/divisor.cuh"
#include "exec/cuda/kernels/mapped_column_sums.cuh"
#include "exec/cuda/kernels/norm.hpp"
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

/// Neighbouring channels, as many as the array has: one, or a pack.
template <typename T>
__device__ void load(const T* from, float (&to)[1]) {
  to[0] = to_float(*from);
}
template <typename T>
__device__ void load(const T* from, float (&to)[pack]) {
  load_pack(from, to);
}
template <typename T>
__device__ void store(T* to, const float (&from)[1]) {
  *to = from_float<T>(from[0]);
}
template <typename T>
__device__ void store(T* to, const float (&from)[pack]) {
  store_pack(to, from);
}
/// Likewise places in windows, a byte each.
__device__ inline void load_places(const std::uint8_t* from, std::uint32_t (&to)[1]) { to[0] = *from; }
__device__ inline void load_places(const std::uint8_t* from, std::uint32_t (&to)[pack]) {
  const uint2 word = *reinterpret_cast<const uint2*>(from);
#pragma unroll
  for (int k = 0; k < pack; ++k) to[k] = (k < 4 ? word.x >> (8 * k) : word.y >> (8 * (k - 4))) & 255U;
}
__device__ inline void store_places(std::uint8_t* to, const std::uint32_t (&from)[1]) {
  *to = static_cast<std::uint8_t>(from[0]);
}
__device__ inline void store_places(std::uint8_t* to, const std::uint32_t (&from)[pack]) {
  uint2 word = make_uint2(0, 0);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    word.x |= from[k] << (8 * k);
    word.y |= from[k + 4] << (8 * k);
  }
  *reinterpret_cast<uint2*>(to) = word;
}

/// Of `out`, whose channels are counted in `width`.
template <typename T, int width>
__global__ void max_pool_forward_kernel(MaxPoolDims d, Grid out, std::int64_t n, const T* x, T* y,
                                        std::uint8_t* indices) {
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    const Grid::Place at = out.place(i);
    const std::int64_t top = at.row * d.stride - d.padding;
    const std::int64_t left = at.column * d.stride - d.padding;
    const std::int64_t first_row = max(std::int64_t{0}, -top);
    const std::int64_t first_column = max(std::int64_t{0}, -left);
    const T* const image = x + at.image * d.height * d.width * d.channels + at.channel * width;
    float best[width] = {};
    std::uint32_t place[width] = {};
    for (std::int64_t r = first_row; r < min(d.kernel, d.height - top); ++r) {
      for (std::int64_t c = first_column; c < min(d.kernel, d.width - left); ++c) {
        float value[width];
        load(image + ((top + r) * d.width + left + c) * d.channels, value);
        const bool is_first = r == first_row && c == first_column;
#pragma unroll
        for (int k = 0; k < width; ++k) {
          if (is_first || value[k] > best[k] || value[k] != value[k]) {  // a NaN is kept: nothing compares greater
            best[k] = value[k];
            place[k] = static_cast<std::uint32_t>(r * d.kernel + c);
          }
        }
      }
    }
#pragma unroll
    for (int k = 0; k < width; ++k) {
      if (d.relu && best[k] <= 0.0F) place[k] = MaxPoolDims::no_place;
    }
    store(y + i * width, best);
    store_places(indices + i * width, place);
  }
}

template <typename T>
class MaxPoolGradient {
 public:
  /// @param unit channels that are counted as one.
  MaxPoolGradient(const MaxPoolDims& d, int unit, const T* dy, const std::uint8_t* indices)
      : d_(d),
        in_(d.height, d.width, d.channels / unit),
        stride_(d.stride),
        out_height_(d.out_height()),
        out_width_(d.out_width()),
        units_(d.channels / unit),
        dy_(dy),
        indices_(indices) {}

  /// Of element @p i of dx, or pack.
  template <int width>
  __device__ void at(std::int64_t i, float (&sum)[width]) const {
    const auto [image, row, column, channel] = in_.place(i);
    const std::int64_t end_row = end_window(row, out_height_);
    const std::int64_t first_column = first_window(column);
    const std::int64_t end_column = end_window(column, out_width_);
#pragma unroll
    for (int k = 0; k < width; ++k) sum[k] = 0.0F;
    for (std::int64_t h = first_window(row); h < end_row; ++h) {
      for (std::int64_t w = first_column; w < end_column; ++w) {
        const std::int64_t out = ((image * out_height_ + h) * out_width_ + w) * d_.channels + channel * width;
        const auto here = static_cast<std::uint32_t>((row + d_.padding - h * d_.stride) * d_.kernel + column +
                                                     d_.padding - w * d_.stride);
        float gradient[width];
        std::uint32_t place[width];
        load(dy_ + out, gradient);
        load_places(indices_ + out, place);
#pragma unroll
        for (int k = 0; k < width; ++k) {
          if (place[k] == here) sum[k] += gradient[k];
        }
      }
    }
  }
  /// Of a row of packs, for map_with_column_sums().
  __device__ void operator()(std::int64_t row, std::int64_t at_pack, float (&sum)[pack]) const {
    at(row * units_ + at_pack, sum);
  }

 private:
  // Windows that cover a coordinate: ceil((at + padding - kernel + 1) / stride) .. floor((at + padding) / stride).
  __device__ std::int64_t first_window(std::int64_t at) const {
    return windows(max(std::int64_t{0}, at + d_.padding - d_.kernel + d_.stride));
  }
  __device__ std::int64_t end_window(std::int64_t at, std::int64_t num) const {
    return min(num, windows(at + d_.padding) + 1);
  }
  __device__ std::int64_t windows(std::int64_t distance) const {
    auto rest = static_cast<std::uint32_t>(distance);
    return std::int64_t{stride_.divide(rest)};
  }

  MaxPoolDims d_;
  Grid in_;
  Divisor stride_;
  std::int64_t out_height_, out_width_, units_;
  const T* dy_;
  const std::uint8_t* indices_;
};

template <typename T, int width>
__global__ void max_pool_backward_kernel(MaxPoolGradient<T> gradient, std::int64_t n, T* dx) {
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) {
    float sum[width];
    gradient.at(i, sum);
    store(dx + i * width, sum);
  }
}

/// Whether places are moved eight at a time.
bool have_whole_words(const std::uint8_t* indices) { return reinterpret_cast<std::uintptr_t>(indices) % pack == 0; }

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
  STRATA_INVARIANT(d.kernel > 0 && d.kernel <= (d.relu ? 15 : 16) && d.padding <= d.kernel / 2,
                   "a place in a window is one byte");
  const std::int64_t n = d.images * d.out_height() * d.out_width() * d.channels;
  check_count(n, "max_pool_forward");
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const auto* const from = static_cast<const T*>(x);
    auto* const to = static_cast<T*>(y);
    if (comes_in_packs(d.channels, x, y) && have_whole_words(indices)) {
      const Grid out(d.out_height(), d.out_width(), d.channels / pack);
      max_pool_forward_kernel<T, pack>
          <<<flat_blocks(n / pack), flat_threads, 0, stream>>>(d, out, n / pack, from, to, indices);
    } else {
      const Grid out(d.out_height(), d.out_width(), d.channels);
      max_pool_forward_kernel<T, 1><<<flat_blocks(n), flat_threads, 0, stream>>>(d, out, n, from, to, indices);
    }
  });
  check_launch("max_pool_forward");
}

void max_pool_backward(const MaxPoolDims& d, const void* dy, const std::uint8_t* indices, void* dx,
                       cudaStream_t stream) {
  const std::int64_t n = d.images * d.height * d.width * d.channels;
  check_count(n, "max_pool_backward");
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const auto* const from = static_cast<const T*>(dy);
    auto* const to = static_cast<T*>(dx);
    if (comes_in_packs(d.channels, dy, dx) && have_whole_words(indices)) {
      const MaxPoolGradient<T> gradient(d, pack, from, indices);
      max_pool_backward_kernel<T, pack><<<flat_blocks(n / pack), flat_threads, 0, stream>>>(gradient, n / pack, to);
    } else {
      const MaxPoolGradient<T> gradient(d, 1, from, indices);
      max_pool_backward_kernel<T, 1><<<flat_blocks(n), flat_threads, 0, stream>>>(gradient, n, to);
    }
  });
  check_launch("max_pool_backward");
}

void max_pool_backward_with_bias(const MaxPoolDims& d, const MaxPoolBackwardOperands& operands, DType dbias_dtype,
                                 bool accumulate, float* partials, cudaStream_t stream) {
  const ColumnSumsDims sums{
      .rows = d.images * d.height * d.width, .columns = d.channels, .dtype = d.dtype, .sums_dtype = dbias_dtype};
  if (!comes_in_packs(d.channels, operands.dy, operands.dx) || !have_whole_words(operands.indices)) {
    max_pool_backward(d, operands.dy, operands.indices, operands.dx, stream);
    column_sums(sums, operands.dx, operands.dbias, accumulate, partials, stream);
    return;
  }
  check_count(sums.rows * d.channels, "max_pool_backward");
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    const MaxPoolGradient<T> gradient(d, pack, static_cast<const T*>(operands.dy), operands.indices);
    map_with_column_sums(sums, gradient, static_cast<T*>(operands.dx), operands.dbias, accumulate, partials, stream);
  });
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
