/// @file
/// Activations as maps over flat tensors; each function is written once, on sixteen values.

#include "exec/cpu/kernels/activation.hpp"

#include "exec/cpu/kernels/elementary_functions.hpp"
#include "exec/cpu/kernels/map.hpp"

namespace strata::cpu {

namespace {

// 2·√(2/π) and that times 0.044715: twice the argument of the tanh, since (1 + tanh u)/2 = sigmoid(2u).
constexpr float gelu_slope = 1.59576912160573071F;
constexpr float gelu_cubic = 0.0713548162726009F;
constexpr float inverse_sqrt_two_pi = 0.398942280401432678F;

template <typename F>
void map_dtype(DType dtype, const void* x, void* y, std::int64_t n, F f) {
  with_storage(dtype, [&]<typename T>() { map(static_cast<const T*>(x), static_cast<T*>(y), n, f); });
}

template <typename F>
void map_dtype(DType dtype, const void* a, const void* b, void* y, std::int64_t n, F f) {
  with_storage(
      dtype, [&]<typename T>() { map(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), n, f); });
}

/// d/dx of x·sigmoid(u(x)), times dy: s + x·s·(1 - s)·u'.
STRATA_LANES F32x16 gated_gradient(F32x16 dy, F32x16 x, F32x16 s, F32x16 slope) {
  return dy * (s + x * slope * (s * (1.0F - s)));
}

/// @p value where @p x is above zero or NaN, 0 elsewhere.
STRATA_LANES F32x16 rectified(F32x16 x, F32x16 value) {
  return by_registers([](auto sign, auto kept) { return sign <= 0.0F ? decltype(kept){} : kept; }, x, value);
}

}  // namespace

void gelu_forward(DType dtype, const void* x, void* y, std::int64_t n) {
  map_dtype(dtype, x, y, n, [](F32x16 v) { return v * sigmoid(v * (gelu_slope + gelu_cubic * (v * v))); });
}

void gelu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n) {
  map_dtype(dtype, dy, x, dx, n, [](F32x16 d, F32x16 v) {
    const F32x16 squared = v * v;
    const F32x16 s = sigmoid(v * (gelu_slope + gelu_cubic * squared));
    return gated_gradient(d, v, s, gelu_slope + 3.0F * gelu_cubic * squared);
  });
}

void gelu_erf_forward(DType dtype, const void* x, void* y, std::int64_t n) {
  map_dtype(dtype, x, y, n, [](F32x16 v) { return v * normal_distribution(v); });
}

void gelu_erf_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n) {
  map_dtype(dtype, dy, x, dx, n, [](F32x16 d, F32x16 v) {
    const F32x16 density = inverse_sqrt_two_pi * exponential(-0.5F * (v * v));
    return d * (normal_distribution(v) + v * density);
  });
}

void relu_forward(DType dtype, const void* x, void* y, std::int64_t n) {
  map_dtype(dtype, x, y, n, [](F32x16 v) { return rectified(v, v); });
}

void relu_backward(DType dtype, const void* dy, const void* y, void* dx, std::int64_t n) {
  map_dtype(dtype, dy, y, dx, n, [](F32x16 d, F32x16 v) { return rectified(v, d); });
}

void silu_forward(DType dtype, const void* x, void* y, std::int64_t n) {
  map_dtype(dtype, x, y, n, [](F32x16 v) { return v * sigmoid(v); });
}

void silu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n) {
  map_dtype(dtype, dy, x, dx, n, [](F32x16 d, F32x16 v) { return gated_gradient(d, v, sigmoid(v), broadcast(1.0F)); });
}

void swiglu_forward(DType dtype, const void* x, void* y, std::int64_t rows, std::int64_t width) {
  with_storage(dtype, [&]<typename T>() {
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* gate = static_cast<const T*>(x) + 2 * row * width;
      const T* up = gate + width;
      T* out = static_cast<T*>(y) + row * width;
      for_lanes(width, [=](std::int64_t i, auto lanes) {
        const F32x16 g = load(gate + i, lanes);
        store(out + i, g * sigmoid(g) * load(up + i, lanes), lanes);
      });
    }
  });
}

void swiglu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t rows, std::int64_t width) {
  with_storage(dtype, [&]<typename T>() {
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* dout = static_cast<const T*>(dy) + row * width;
      const T* gate = static_cast<const T*>(x) + 2 * row * width;
      const T* up = gate + width;
      T* dgate = static_cast<T*>(dx) + 2 * row * width;
      T* dup = dgate + width;
      for_lanes(width, [=](std::int64_t i, auto lanes) {
        const F32x16 d = load(dout + i, lanes);
        const F32x16 g = load(gate + i, lanes);
        const F32x16 u = load(up + i, lanes);
        const F32x16 s = sigmoid(g);
        store(dgate + i, gated_gradient(d * u, g, s, broadcast(1.0F)), lanes);
        store(dup + i, d * (g * s), lanes);
      });
    }
  });
}

}  // namespace strata::cpu
