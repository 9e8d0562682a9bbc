/// @file
/// Maps over flat tensors, eight values a thread and turn where all operands are aligned, else one by one.

#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/elementwise.hpp"
#include "exec/cuda/kernels/random.cuh"
#include "exec/cuda/kernels/runs.cuh"
#include "exec/device/workspace.hpp"

namespace strata::cuda {
namespace {

template <typename X, typename Y, typename F>
__global__ void map_one(const X* x, Y* y, std::int64_t n, bool aligned, F f) {
  for (std::int64_t i = flat_index() * pack; i < n; i += flat_stride() * pack) {
    if (aligned && i + pack <= n) {
      float v[pack];
      load_pack(x + i, v);
#pragma unroll
      for (float& value : v) value = f(value);
      store_pack(y + i, v);
    } else {
      for (std::int64_t j = i; j < min(n, i + pack); ++j) y[j] = from_float<Y>(f(to_float(x[j])));
    }
  }
}

template <typename A, typename B, typename Y, typename F>
__global__ void map_two(const A* a, const B* b, Y* y, std::int64_t n, bool aligned, F f) {
  for (std::int64_t i = flat_index() * pack; i < n; i += flat_stride() * pack) {
    if (aligned && i + pack <= n) {
      float u[pack];
      float v[pack];
      load_pack(a + i, u);
      load_pack(b + i, v);
#pragma unroll
      for (int k = 0; k < pack; ++k) u[k] = f(u[k], v[k]);
      store_pack(y + i, u);
    } else {
      for (std::int64_t j = i; j < min(n, i + pack); ++j) y[j] = from_float<Y>(f(to_float(a[j]), to_float(b[j])));
    }
  }
}

template <typename F>
void map(DType x_dtype, const void* x, DType y_dtype, void* y, std::int64_t n, F f, cudaStream_t stream) {
  if (n == 0) return;
  with_storage(x_dtype, [&](auto x_type) {
    with_storage(y_dtype, [&](auto y_type) {
      map_one<<<flat_blocks((n + pack - 1) / pack), flat_threads, 0, stream>>>(
          static_cast<const decltype(x_type)*>(x), static_cast<decltype(y_type)*>(y), n, are_aligned(x, y), f);
    });
  });
  check_launch("map");
}

template <typename F>
void map(DType a_dtype, const void* a, DType b_dtype, const void* b, void* y, std::int64_t n, F f,
         cudaStream_t stream) {
  if (n == 0) return;
  with_storage(a_dtype, [&](auto a_type) {
    with_storage(b_dtype, [&](auto b_type) {
      map_two<<<flat_blocks((n + pack - 1) / pack), flat_threads, 0, stream>>>(
          static_cast<const decltype(a_type)*>(a), static_cast<const decltype(b_type)*>(b),
          static_cast<decltype(b_type)*>(y), n, are_aligned(a, b, y), f);
    });
  });
  check_launch("map");
}

struct Identity {
  __device__ float operator()(float x) const { return x; }
};
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
// 2·√(2/π) and that times 0.044715: the sigmoid form of the tanh approximation.
constexpr float gelu_slope = 1.59576912160573071F;
constexpr float gelu_cubic = 0.0713548162726009F;
struct Gelu {
  __device__ float operator()(float x) const { return x * sigmoid(x * (gelu_slope + gelu_cubic * (x * x))); }
};
/// d/dx of x·sigmoid(u(x)), times dy.
__device__ float gated_gradient(float dy, float x, float s, float slope) {
  return dy * (s + x * slope * (s * (1.0F - s)));
}
struct GeluGradient {
  __device__ float operator()(float dy, float x) const {
    const float squared = x * x;
    const float s = sigmoid(x * (gelu_slope + gelu_cubic * squared));
    return gated_gradient(dy, x, s, gelu_slope + 3.0F * gelu_cubic * squared);
  }
};
/// Φ(x), which keeps the relative accuracy of its lower tail.
__device__ float normal_distribution(float x) { return 0.5F * erfcf(-0.707106781186547524F * x); }
struct GeluErf {
  __device__ float operator()(float x) const { return x * normal_distribution(x); }
};
struct GeluErfGradient {
  __device__ float operator()(float dy, float x) const {
    return dy * (normal_distribution(x) + x * (0.398942280401432678F * expf(-0.5F * (x * x))));
  }
};
struct Relu {
  __device__ float operator()(float x) const { return x <= 0.0F ? 0.0F : x; }
};
struct ReluGradient {
  __device__ float operator()(float dy, float y) const { return y <= 0.0F ? 0.0F : dy; }
};

template <typename T>
__global__ void fill_kernel(T* y, std::int64_t n, float value) {
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) y[i] = from_float<T>(value);
}

/// Rows of x: width gates, then width ups.
template <typename T>
__global__ void swiglu_forward_kernel(const T* x, T* y, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = flat_index(); i < rows * width; i += flat_stride()) {
    const std::int64_t gate_at = i + i / width * width;
    const float gate = to_float(x[gate_at]);
    y[i] = from_float<T>(gate * sigmoid(gate) * to_float(x[gate_at + width]));
  }
}
/// The same with whole packs: width is a multiple of the pack, and x and y are aligned.
template <typename T>
__global__ void swiglu_forward_packs(const T* x, T* y, std::int64_t rows, std::int64_t width) {
  const std::int64_t packs = width / pack;
  for (std::int64_t p = flat_index(); p < rows * packs; p += flat_stride()) {
    const T* const gate_at = x + p / packs * 2 * width + p % packs * pack;
    float gate[pack];
    float up[pack];
    load_pack(gate_at, gate);
    load_pack(gate_at + width, up);
#pragma unroll
    for (int k = 0; k < pack; ++k) gate[k] = gate[k] * sigmoid(gate[k]) * up[k];
    store_pack(y + p * pack, gate);
  }
}
__device__ void swiglu_gradients(float dy, float gate, float up, float& d_gate, float& d_up) {
  const float s = sigmoid(gate);
  d_gate = gated_gradient(dy * up, gate, s, 1.0F);
  d_up = dy * (gate * s);
}
template <typename T>
__global__ void swiglu_backward_kernel(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = flat_index(); i < rows * width; i += flat_stride()) {
    const std::int64_t gate_at = i + i / width * width;
    float d_gate;
    float d_up;
    swiglu_gradients(to_float(dy[i]), to_float(x[gate_at]), to_float(x[gate_at + width]), d_gate, d_up);
    dx[gate_at] = from_float<T>(d_gate);
    dx[gate_at + width] = from_float<T>(d_up);
  }
}
template <typename T>
__global__ void swiglu_backward_packs(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width) {
  const std::int64_t packs = width / pack;
  for (std::int64_t p = flat_index(); p < rows * packs; p += flat_stride()) {
    const std::int64_t gate_at = p / packs * 2 * width + p % packs * pack;
    float d[pack];
    float gate[pack];
    float up[pack];
    load_pack(dy + p * pack, d);
    load_pack(x + gate_at, gate);
    load_pack(x + gate_at + width, up);
#pragma unroll
    for (int k = 0; k < pack; ++k) {
      float d_gate;
      float d_up;
      swiglu_gradients(d[k], gate[k], up[k], d_gate, d_up);
      gate[k] = d_gate;
      up[k] = d_up;
    }
    store_pack(dx + gate_at, gate);
    store_pack(dx + gate_at + width, up);
  }
}

/// Numbers of neighbours that are neighbours.
struct InOrder {
  __device__ std::uint64_t at(std::int64_t i) const { return static_cast<std::uint64_t>(i); }
};

/// Element i has the number first + places.at(i); where @p whole_packs, those of eight elements follow each other.
template <typename T, typename Places>
__global__ void dropout_kernel(const T* x, T* y, std::int64_t n, bool aligned, float probability, float kept,
                               const RandomStream* random, std::uint64_t first, Places places, bool whole_packs) {
  for (std::int64_t i = flat_index() * pack; i < n; i += flat_stride() * pack) {
    float v[pack];
    load_some(x + i, n - i, aligned, v);
    std::uint64_t number = first + static_cast<std::uint64_t>(places.at(i));
    if (whole_packs) {
      float u[pack];
      uniforms(*random, number, u);
#pragma unroll
      for (int k = 0; k < pack; ++k) v[k] *= u[k] < probability ? 0.0F : kept;
    } else {
      StreamWords words(*random);
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        if (i + k >= n) break;
        if (k > 0) number = first + static_cast<std::uint64_t>(places.at(i + k));
        v[k] *= words.uniform(number) < probability ? 0.0F : kept;
      }
    }
    store_some(y + i, n - i, aligned, v);
  }
}

template <typename Places>
void drop(DType dtype, const void* x, void* y, std::int64_t n, const Dropout& dropout, const Places& places,
          bool whole_packs, cudaStream_t stream) {
  const float probability = dropout.probability;
  STRATA_INVARIANT(probability >= 0.0F && probability < 1.0F, "a dropout probability is in [0, 1)");
  if (n == 0) return;
  with_storage(dtype, [&](auto type) {
    using T = decltype(type);
    dropout_kernel<<<flat_blocks((n + pack - 1) / pack), flat_threads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<T*>(y), n, are_aligned(x, y), probability, 1.0F / (1.0F - probability),
        dropout.random, dropout.first_element, places, whole_packs);
  });
  check_launch("dropout");
}

struct Square {
  __device__ static double of(float x) { return static_cast<double>(x) * static_cast<double>(x); }
};
struct Itself {
  __device__ static double of(float x) { return static_cast<double>(x); }
};

/// Joins one double a thread of a block of flat_threads in a fixed order; thread 0 has the result.
__device__ double block_sum_of_doubles(double value) {
  __shared__ double values[flat_threads];
  values[threadIdx.x] = value;
  for (unsigned half = flat_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];
}

template <typename Term, typename T>
__global__ void partial_sums(const T* x, std::int64_t n, double* partials) {
  double sum = 0.0;
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) sum += Term::of(to_float(x[i]));
  sum = block_sum_of_doubles(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void join_partial_sums(const double* partials, int num_partials, double scale, float* sum, bool accumulate) {
  double total = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < num_partials; i += static_cast<int>(flat_threads)) {
    total += partials[i];
  }
  total = block_sum_of_doubles(total);
  if (threadIdx.x == 0) {
    *sum = static_cast<float>((accumulate ? static_cast<double>(*sum) : 0.0) + scale * total);
  }
}

template <typename Term, typename T>
void sum_terms(const T* x, std::int64_t n, float scale, float* sum, bool accumulate, double* workspace,
               cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(flat_blocks(n), max_sum_blocks));
  partial_sums<Term><<<blocks, flat_threads, 0, stream>>>(x, n, workspace);
  check_launch("partial_sums");
  join_partial_sums<<<1, flat_threads, 0, stream>>>(workspace, static_cast<int>(blocks), static_cast<double>(scale),
                                                    sum, accumulate);
  check_launch("join_partial_sums");
}

__global__ void clip_factor_kernel(const float* sum_of_squares, float clip_norm, float* factor, float* norm) {
  const float length = __fsqrt_rn(*sum_of_squares);
  const float ratio = clip_norm / (length + 1e-6F);
  *factor = ratio > 1.0F ? 1.0F : ratio;  // NaN stays NaN: a broken gradient must show
  if (norm != nullptr) *norm = length;
}

/// Element e of the whole parameter, from its block of four words.
struct Normal {
  float mean;
  float standard_deviation;
  __device__ float operator()(StreamWords& words, std::uint64_t e) const {
    const NormalPair pair = device_normal_pair(words.word(e & ~std::uint64_t{1}), words.word(e | 1U));
    return __fmaf_rn(standard_deviation, e % 2 == 0 ? pair.cosine : pair.sine, mean);
  }
};
struct Uniform {
  float lower;
  float width;
  __device__ float operator()(StreamWords& words, std::uint64_t e) const {
    return __fmaf_rn(width, words.uniform(e), lower);
  }
};

template <typename T, typename Distribution>
__global__ void initialize_kernel(T* y, std::int64_t n, RandomStream random, std::uint64_t first,
                                  Distribution distribution) {
  for (std::int64_t i = flat_index() * 4; i < n; i += flat_stride() * 4) {
    StreamWords words(random);
    for (std::int64_t j = i; j < min(n, i + 4); ++j) {
      y[j] = from_float<T>(distribution(words, first + static_cast<std::uint64_t>(j)));
    }
  }
}

template <typename Distribution>
void initialize(const InitializedSlice& slice, Distribution distribution, cudaStream_t stream) {
  if (slice.n == 0) return;
  with_storage(slice.dtype, [&](auto type) {
    initialize_kernel<<<flat_blocks((slice.n + 3) / 4), flat_threads, 0, stream>>>(
        static_cast<decltype(type)*>(slice.y), slice.n, slice.random, slice.first_element, distribution);
  });
  check_launch("initialize");
}

}  // namespace

void fill(DType dtype, void* y, std::int64_t n, float value, cudaStream_t stream) {
  if (n == 0) return;
  with_storage(dtype, [&](auto type) {
    fill_kernel<<<flat_blocks(n), flat_threads, 0, stream>>>(static_cast<decltype(type)*>(y), n, value);
  });
  check_launch("fill");
}

void cast(DType from, const void* x, DType to, void* y, std::int64_t n, cudaStream_t stream) {
  if (from == to) {
    check(cudaMemcpyAsync(y, x, static_cast<std::size_t>(n * size_of(from)), cudaMemcpyDeviceToDevice, stream), "copy");
    return;
  }
  map(from, x, to, y, n, Identity{}, stream);
}

void accumulate(DType x_dtype, const void* x, DType y_dtype, void* y, std::int64_t n, cudaStream_t stream) {
  map(x_dtype, x, y_dtype, y, y, n, Add{}, stream);
}

void add(DType dtype, const void* a, const void* b, void* y, std::int64_t n, cudaStream_t stream) {
  map(dtype, a, dtype, b, y, n, Add{}, stream);
}

void gelu_forward(DType dtype, const void* x, void* y, std::int64_t n, cudaStream_t stream) {
  map(dtype, x, dtype, y, n, Gelu{}, stream);
}

void gelu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n, cudaStream_t stream) {
  map(dtype, dy, dtype, x, dx, n, GeluGradient{}, stream);
}

void gelu_erf_forward(DType dtype, const void* x, void* y, std::int64_t n, cudaStream_t stream) {
  map(dtype, x, dtype, y, n, GeluErf{}, stream);
}

void gelu_erf_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t n, cudaStream_t stream) {
  map(dtype, dy, dtype, x, dx, n, GeluErfGradient{}, stream);
}

void relu_forward(DType dtype, const void* x, void* y, std::int64_t n, cudaStream_t stream) {
  map(dtype, x, dtype, y, n, Relu{}, stream);
}

void relu_backward(DType dtype, const void* dy, const void* y, void* dx, std::int64_t n, cudaStream_t stream) {
  map(dtype, dy, dtype, y, dx, n, ReluGradient{}, stream);
}

void swiglu_forward(DType dtype, const void* x, void* y, std::int64_t rows, std::int64_t width, cudaStream_t stream) {
  with_storage(dtype, [&](auto type) {
    using T = decltype(type);
    const auto* in = static_cast<const T*>(x);
    auto* out = static_cast<T*>(y);
    if (width % pack == 0 && are_aligned(x, y)) {
      swiglu_forward_packs<<<flat_blocks(rows * width / pack), flat_threads, 0, stream>>>(in, out, rows, width);
    } else {
      swiglu_forward_kernel<<<flat_blocks(rows * width), flat_threads, 0, stream>>>(in, out, rows, width);
    }
  });
  check_launch("swiglu_forward");
}

void swiglu_backward(DType dtype, const void* dy, const void* x, void* dx, std::int64_t rows, std::int64_t width,
                     cudaStream_t stream) {
  with_storage(dtype, [&](auto type) {
    using T = decltype(type);
    const auto* d = static_cast<const T*>(dy);
    const auto* in = static_cast<const T*>(x);
    auto* out = static_cast<T*>(dx);
    if (width % pack == 0 && are_aligned(dy, x, dx)) {
      swiglu_backward_packs<<<flat_blocks(rows * width / pack), flat_threads, 0, stream>>>(d, in, out, rows, width);
    } else {
      swiglu_backward_kernel<<<flat_blocks(rows * width), flat_threads, 0, stream>>>(d, in, out, rows, width);
    }
  });
  check_launch("swiglu_backward");
}

void dropout(DType dtype, const void* x, void* y, std::int64_t n, const Dropout& dropout, cudaStream_t stream) {
  drop(dtype, x, y, n, dropout, InOrder{}, true, stream);
}

void dropout_of_runs(const PermuteDims& d, const void* x, void* y, const Dropout& dropout, cudaStream_t stream) {
  drop(d.dtype, x, y, d.elements, dropout, Runs(d, 1, "dropout"), d.comes_in(pack), stream);
}

void sum_of_squares(DType dtype, const void* x, std::int64_t n, float* sum, bool accumulate, double* workspace,
                    cudaStream_t stream) {
  with_storage(dtype, [&](auto type) {
    sum_terms<Square>(static_cast<const decltype(type)*>(x), n, 1.0F, sum, accumulate, workspace, stream);
  });
}

void sum_of_loss(const float* x, std::int64_t n, float scale, float* sum, bool accumulate, double* workspace,
                 cudaStream_t stream) {
  sum_terms<Itself>(x, n, scale, sum, accumulate, workspace, stream);
}

void clip_factor(const float* sum_of_squares, float clip_norm, float* factor, float* norm, cudaStream_t stream) {
  clip_factor_kernel<<<1, 1, 0, stream>>>(sum_of_squares, clip_norm, factor, norm);
  check_launch("clip_factor");
}

void initialize_normal(const InitializedSlice& slice, float mean, float standard_deviation, cudaStream_t stream) {
  initialize(slice, Normal{mean, standard_deviation}, stream);
}

void initialize_uniform(const InitializedSlice& slice, float lower, float upper, cudaStream_t stream) {
  initialize(slice, Uniform{lower, upper - lower}, stream);
}

}  // namespace strata::cuda
