#pragma once

/// @file
/// y = f(x) and y = f(a, b) over flat tensors: sixteen values at a time, chunks of them on the OpenMP threads. y may be
/// an input.

#include <cstdint>

#include "exec/cpu/kernels/storage.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

/// @param f F32x16 → F32x16.
template <typename X, typename Y, typename F>
void map(const X* x, Y* y, std::int64_t n, F f) {
  for_chunks(n, [=](std::int64_t begin, std::int64_t count) {
    for_lanes(count, [=](std::int64_t i, auto lanes) { store(y + begin + i, f(load(x + begin + i, lanes)), lanes); });
  });
}

/// @param f (F32x16, F32x16) → F32x16.
template <typename A, typename B, typename Y, typename F>
void map(const A* a, const B* b, Y* y, std::int64_t n, F f) {
  for_chunks(n, [=](std::int64_t begin, std::int64_t count) {
    for_lanes(count, [=](std::int64_t i, auto lanes) {
      store(y + begin + i, f(load(a + begin + i, lanes), load(b + begin + i, lanes)), lanes);
    });
  });
}

}  // namespace strata::cpu
