#pragma once

/// @file
/// Sixteen floats at a time: loads and stores of f32 and bf16, and what compares and joins lanes. Written in the
/// compiler's vector extension, so that AVX-512 is one register, AVX2 two, and nothing else in the kernels depends on
/// the machine. Functions of them are in elementary_functions.hpp.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.hpp"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace strata::cpu {

inline constexpr std::int64_t num_lanes = 16;

using F32x16 = float __attribute__((vector_size(64)));
using F32x8 = float __attribute__((vector_size(32)));
using F32x4 = float __attribute__((vector_size(16)));
using I32x16 = std::int32_t __attribute__((vector_size(64)));
using U32x16 = std::uint32_t __attribute__((vector_size(64)));
using U32x8 = std::uint32_t __attribute__((vector_size(32)));
using U16x16 = std::uint16_t __attribute__((vector_size(32)));
using U16x8 = std::uint16_t __attribute__((vector_size(16)));

#define STRATA_LANES [[gnu::always_inline]] inline

/// Which lanes of a load or store exist in memory: all sixteen, or the first few at the end of a row.
struct AllLanes {};
struct FirstLanes {
  std::size_t count;
};

/// Calls body(i, lanes) for i = 0, 16, … below @p n: once for every full vector, then for the rest. Both compute the
/// same bits.
template <typename Body>
STRATA_LANES void for_lanes(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + num_lanes <= n; i += num_lanes) {
    body(i, AllLanes{});
  }
  if (i < n) {
    body(i, FirstLanes{static_cast<std::size_t>(n - i)});
  }
}

STRATA_LANES F32x8 low_half(F32x16 v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
STRATA_LANES F32x8 high_half(F32x16 v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); }
STRATA_LANES U32x8 low_half(U32x16 v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
STRATA_LANES U32x8 high_half(U32x16 v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); }

/// body(vectors...), of vectors as wide as the machine's. GCC 12 compares and narrows wider ones lane by lane, four
/// times slower on AVX2 and more, so whatever compares goes through here.
/// @param body of F32x16 and U32x16, and of F32x8 and U32x8
template <typename Body, typename... Vectors>
STRATA_LANES auto by_registers(Body&& body, Vectors... vectors) {
#if defined(__AVX512F__)
  return body(vectors...);
#else
  return __builtin_shufflevector(body(low_half(vectors)...), body(high_half(vectors)...), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                 10, 11, 12, 13, 14, 15);
#endif
}

template <typename Floats = F32x16>
STRATA_LANES Floats broadcast(float value) {
  return value - Floats{};
}

STRATA_LANES F32x16 widen(U16x16 bits) { return std::bit_cast<F32x16>(__builtin_convertvector(bits, U32x16) << 16U); }

/// The rounding of bf16(float).
template <typename Words, typename Bits, typename Floats>
STRATA_LANES Bits rounded_to_bf16(Floats value) {
  const auto word = std::bit_cast<Words>(value);
  const Words rounded = (word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U;
  const Words quiet = (word >> 16U) | 0x40U;
  return __builtin_convertvector(value == value ? rounded : quiet, Bits);
}
STRATA_LANES U16x16 round_to_bf16(F32x16 value) { return rounded_to_bf16<U32x16, U16x16>(value); }
STRATA_LANES U16x8 round_to_bf16(F32x8 value) { return rounded_to_bf16<U32x8, U16x8>(value); }

/// Rounds to bf16 as bf16(float) does: to nearest even, NaN stays a quiet NaN. Where the processor has an instruction
/// for it, which costs a third, subnormal floats (below 1.2e-38) become zero.
STRATA_LANES U16x16 narrow(F32x16 value) {
#if defined(__AVX512BF16__)
  return std::bit_cast<U16x16>(_mm512_cvtneps_pbh(value));
#else
  return by_registers([](auto floats) { return round_to_bf16(floats); }, value);
#endif
}

/// As wide as a register of the machine: sums over a loop are of these, since what spans two registers the compiler
/// keeps in memory from one sum to the next.
#if defined(__AVX512F__)
using Register = F32x16;
#else
using Register = F32x8;
#endif
inline constexpr int register_lanes = sizeof(Register) / sizeof(float);
STRATA_LANES Register load_register(const float* from) {
  Register value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
STRATA_LANES void store_register(float* to, Register value) { std::memcpy(to, &value, sizeof value); }

STRATA_LANES F32x16 load(const float* from, AllLanes = {}) {
  F32x16 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
STRATA_LANES F32x16 load(const bf16* from, AllLanes = {}) {
  U16x16 bits;
  std::memcpy(&bits, from, sizeof bits);
  return widen(bits);
}
/// Lanes that do not exist are 0.
STRATA_LANES F32x16 load(const float* from, FirstLanes lanes) {
  F32x16 value{};
  std::memcpy(&value, from, lanes.count * sizeof *from);
  return value;
}
STRATA_LANES F32x16 load(const bf16* from, FirstLanes lanes) {
  U16x16 bits{};
  std::memcpy(&bits, from, lanes.count * sizeof *from);
  return widen(bits);
}

STRATA_LANES void store(float* to, F32x16 value, AllLanes = {}) { std::memcpy(to, &value, sizeof value); }
STRATA_LANES void store(bf16* to, F32x16 value, AllLanes = {}) {
  const U16x16 bits = narrow(value);
  std::memcpy(static_cast<void*>(to), &bits, sizeof bits);
}
STRATA_LANES void store(float* to, F32x16 value, FirstLanes lanes) {
  std::memcpy(to, &value, lanes.count * sizeof *to);
}
STRATA_LANES void store(bf16* to, F32x16 value, FirstLanes lanes) {
  const U16x16 bits = narrow(value);
  std::memcpy(static_cast<void*>(to), &bits, lanes.count * sizeof *to);
}

/// @p value where the lane exists, @p other elsewhere.
STRATA_LANES F32x16 keep(F32x16 value, float, AllLanes) { return value; }
STRATA_LANES F32x16 keep(F32x16 value, float other, FirstLanes lanes) {
  const I32x16 index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return index < static_cast<std::int32_t>(lanes.count) ? value : broadcast(other);
}

STRATA_LANES F32x16 maximum(F32x16 a, F32x16 b) {
  return by_registers([](auto x, auto y) { return x > y ? x : y; }, a, b);
}

/// Sum of the lanes, in pairs: lane i and i + 8, then i + 4, …
STRATA_LANES float sum_lanes(F32x16 v) {
  const F32x8 a = low_half(v) + high_half(v);
  const F32x4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[2]) + (b[1] + b[3]);
}
STRATA_LANES float max_lanes(F32x16 v) {
  float result = v[0];
  for (int lane = 1; lane < num_lanes; ++lane) {
    result = v[lane] > result ? v[lane] : result;
  }
  return result;
}

STRATA_LANES F32x16 square_root(F32x16 x) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xffff, x);  // the unmasked form trips GCC 12's warning about uninitialized values
#else
  for (int lane = 0; lane < num_lanes; ++lane) {
    x[lane] = std::sqrt(x[lane]);
  }
  return x;
#endif
}

}  // namespace strata::cpu
