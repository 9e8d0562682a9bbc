/// @file
/// Dropout: the factors of a chunk, 0 or 1/(1 - p), are made in the first-level cache, then applied.

#include "exec/cpu/kernels/dropout.hpp"

#include "exec/cpu/kernels/dropout_mask.hpp"
#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

namespace {

/// y = combine(a, b, factors) over chunks; F is (F32x16 a, F32x16 b, F32x16 factor) → F32x16.
template <typename T, typename F>
void apply(const T* a, const T* b, T* y, std::int64_t n, const Dropout& dropout, F combine) {
  // Checked here, since nothing may be thrown inside the parallel loop.
  STRATA_INVARIANT(dropout.probability >= 0.0F && dropout.probability < 1.0F,
                   fmt::format("dropout probability {} is not in [0, 1)", dropout.probability));
  for_chunks(n, [=](std::int64_t begin, std::int64_t count) {
    float factors[chunk_elements];
    dropout_scale_row(dropout.random, dropout.first_element + static_cast<std::uint64_t>(begin), count,
                      dropout.probability, factors);
    for_lanes(count, [&](std::int64_t i, auto lanes) {
      const F32x16 first = load(a + begin + i, lanes);
      const F32x16 second = load(b + begin + i, lanes);
      store(y + begin + i, combine(first, second, load(factors + i, lanes)), lanes);
    });
  });
}

}  // namespace

void dropout_forward(DType dtype, const void* x, void* y, std::int64_t n, const Dropout& dropout) {
  with_storage(dtype, [&]<typename T>() {
    const auto* in = static_cast<const T*>(x);
    apply(in, in, static_cast<T*>(y), n, dropout, [](F32x16 v, F32x16, F32x16 factor) { return v * factor; });
  });
}

void dropout_backward(DType dtype, const void* dy, void* dx, std::int64_t n, const Dropout& dropout) {
  dropout_forward(dtype, dy, dx, n, dropout);
}

void add_dropout(DType dtype, const void* a, const void* b, void* y, std::int64_t n, const Dropout& dropout) {
  with_storage(dtype, [&]<typename T>() {
    apply(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), n, dropout,
          [](F32x16 u, F32x16 v, F32x16 factor) { return u + v * factor; });
  });
}

}  // namespace strata::cpu
