/// @file
/// A thread an element of what is written. Sums over images are in their order, as on the CPU.

#include "exec/cuda/kernels/class_token.hpp"
#include "exec/cuda/kernels/device.cuh"

namespace strata::cuda {
namespace {

template <typename T>
__global__ void class_token_forward_kernel(ClassTokenDims d, const T* x, const T* token, const T* positions, T* y) {
  const std::int64_t image = (d.positions + 1) * d.channels;
  for (std::int64_t i = flat_index(); i < d.images * image; i += flat_stride()) {
    const std::int64_t place = i % image;
    // Of y each image has one row more than of x, the first.
    const T from = place < d.channels ? token[place] : x[i - (i / image + 1) * d.channels];
    y[i] = from_float<T>(to_float(from) + to_float(positions[place]));
  }
}

template <typename T>
__global__ void class_token_rows_gradient(ClassTokenDims d, const T* dy, T* dx) {
  const std::int64_t image = d.positions * d.channels;
  for (std::int64_t i = flat_index(); i < d.images * image; i += flat_stride()) {
    dx[i] = dy[i + (i / image + 1) * d.channels];
  }
}

template <typename T, typename G>
__global__ void class_token_parameter_gradients(ClassTokenDims d, const T* dy, G* dtoken, G* dpositions,
                                                ClassTokenAccumulate accumulate) {
  const std::int64_t image = (d.positions + 1) * d.channels;
  for (std::int64_t i = flat_index(); i < image; i += flat_stride()) {
    float sum = 0.0F;
    for (std::int64_t n = 0; n < d.images; ++n) sum += to_float(dy[n * image + i]);
    dpositions[i] = from_float<G>(accumulate.positions ? sum + to_float(dpositions[i]) : sum);
    if (i < d.channels) dtoken[i] = from_float<G>(accumulate.token ? sum + to_float(dtoken[i]) : sum);
  }
}

template <typename T>
__global__ void first_row_forward_kernel(FirstRowDims d, const T* x, T* y) {
  for (std::int64_t i = flat_index(); i < d.samples * d.width; i += flat_stride()) {
    y[i] = x[i / d.width * d.sequence * d.width + i % d.width];
  }
}

template <typename T>
__global__ void first_row_backward_kernel(FirstRowDims d, const T* dy, T* dx) {
  const std::int64_t sample = d.sequence * d.width;
  for (std::int64_t i = flat_index(); i < d.samples * sample; i += flat_stride()) {
    dx[i] = i % sample < d.width ? dy[i / sample * d.width + i % sample] : from_float<T>(0.0F);
  }
}

}  // namespace

void class_token_forward(const ClassTokenDims& d, const void* x, const void* token, const void* positions, void* y,
                         cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    class_token_forward_kernel<<<flat_blocks(d.images * (d.positions + 1) * d.channels), flat_threads, 0, stream>>>(
        d, static_cast<const T*>(x), static_cast<const T*>(token), static_cast<const T*>(positions),
        static_cast<T*>(y));
  });
  check_launch("class_token_forward");
}

void class_token_backward(const ClassTokenDims& d, const ClassTokenBackwardOperands& operands,
                          const ClassTokenAccumulate& accumulate, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    with_storage(d.gradient_dtype, [&](auto gradient) {
      using T = decltype(type);
      using G = decltype(gradient);
      const auto* const dy = static_cast<const T*>(operands.dy);
      class_token_rows_gradient<<<flat_blocks(d.images * d.positions * d.channels), flat_threads, 0, stream>>>(
          d, dy, static_cast<T*>(operands.dx));
      check_launch("class_token_rows_gradient");
      class_token_parameter_gradients<<<flat_blocks((d.positions + 1) * d.channels), flat_threads, 0, stream>>>(
          d, dy, static_cast<G*>(operands.dtoken), static_cast<G*>(operands.dpositions), accumulate);
      check_launch("class_token_parameter_gradients");
    });
  });
}

void first_row_forward(const FirstRowDims& d, const void* x, void* y, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    first_row_forward_kernel<<<flat_blocks(d.samples * d.width), flat_threads, 0, stream>>>(d, static_cast<const T*>(x),
                                                                                            static_cast<T*>(y));
  });
  check_launch("first_row_forward");
}

void first_row_backward(const FirstRowDims& d, const void* dy, void* dx, cudaStream_t stream) {
  with_storage(d.dtype, [&](auto type) {
    using T = decltype(type);
    first_row_backward_kernel<<<flat_blocks(d.samples * d.sequence * d.width), flat_threads, 0, stream>>>(
        d, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
  check_launch("first_row_backward");
}

}  // namespace strata::cuda
