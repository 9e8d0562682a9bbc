#pragma once

/// @file
/// Sixteen floats at a time: loads and stores of f32 and bf16, and the elementary functions that the kernels need.
/// Written in the compiler's vector extension, so that AVX-512 is one register, AVX2 two, and nothing else in the
/// kernels depends on the machine.
///
/// Accuracy, measured against double in tests/unit/exec/test_vector_math.cpp: exp 2 ulp, erfc 2e-6 relative for |x| ≤
/// 4, sigmoid 4 ulp.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

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

STRATA_LANES F32x16 broadcast(float value) { return value - F32x16{}; }

STRATA_LANES F32x16 widen(U16x16 bits) { return std::bit_cast<F32x16>(__builtin_convertvector(bits, U32x16) << 16U); }

/// The rounding of bf16(float), over vectors of equally many floats, 32-bit words and 16-bit words.
template <typename Floats, typename Words, typename Bits>
STRATA_LANES Bits round_to_bf16(Floats value) {
  const auto word = std::bit_cast<Words>(value);
  const Words rounded = (word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U;
  const Words quiet = (word >> 16U) | 0x40U;
  return __builtin_convertvector(value == value ? rounded : quiet, Bits);
}

/// Rounds to bf16 as bf16(float) does: to nearest even, NaN stays a quiet NaN. Where the processor has an instruction
/// for it, which costs a third, subnormal floats (below 1.2e-38) become zero.
STRATA_LANES U16x16 narrow(F32x16 value) {
#if defined(__AVX512BF16__)
  return std::bit_cast<U16x16>(_mm512_cvtneps_pbh(value));
#elif defined(__AVX512F__)
  return round_to_bf16<F32x16, U32x16, U16x16>(value);
#else
  // GCC 12 compares and narrows vectors that are wider than the machine's lane by lane: four times slower on AVX2.
  const auto low = round_to_bf16<F32x8, U32x8, U16x8>(__builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7));
  const auto high =
      round_to_bf16<F32x8, U32x8, U16x8>(__builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
}

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

STRATA_LANES F32x16 maximum(F32x16 a, F32x16 b) { return a > b ? a : b; }

/// Sum of the lanes, in pairs: lane i and i + 8, then i + 4, …
STRATA_LANES float sum_lanes(F32x16 v) {
  const F32x8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
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

/// 1/x within 1 ulp, for 2⁻¹²⁶ ≤ |x| ≤ 2¹²⁶; NaN for NaN. A division of sixteen floats takes as long as the rest of a
/// sigmoid.
STRATA_LANES F32x16 reciprocal(F32x16 x) {
#if defined(__AVX512F__)
  const F32x16 estimate = _mm512_maskz_rcp14_ps(0xffff, x);
  return estimate + estimate * (1.0F - x * estimate);
#else
  return 1.0F / x;
#endif
}

/// eˣ within 2 ulp for -87.3 ≤ x ≤ 88; NaN for NaN; anything elsewhere.
STRATA_LANES F32x16 exponential_in_range(F32x16 x) {
  // eˣ = 2ⁿ·2ᶠ with x·log₂e = n + f, |f| ≤ ½. Adding 1.5·2²³ leaves the nearest integer in the low bits. Log₂e has two
  // parts, the first of which meets n in an fma.
  constexpr float log2_e = 1.44269502F;
  constexpr float log2_e_rest = 1.92596299e-8F;
  constexpr float magic = 12582912.0F;
  const F32x16 shifted = x * log2_e + magic;
  const F32x16 n = shifted - magic;
  const F32x16 f = (x * log2_e - n) + x * log2_e_rest;
  // Minimax fit of (2ᶠ - 1)/f, 2.6e-9 relative.
  F32x16 p = f * 1.559467759e-4F + 1.340664391e-3F;
  p = p * f + 9.617692975e-3F;
  p = p * f + 5.550310551e-2F;
  p = p * f + 2.402265278e-1F;
  p = p * f + 6.931472150e-1F;
  p = p * f + 1.0F;
  const U32x16 scale = (std::bit_cast<U32x16>(shifted) << 23U) + 0x3f800000U;  // 2ⁿ
  return p * std::bit_cast<F32x16>(scale);
}

/// eˣ for x ≤ 0 within 2 ulp; 0 below -87.3, where the result would be subnormal, and for -∞; NaN for NaN.
STRATA_LANES F32x16 exponential_of_negative(F32x16 x) { return x < -87.3F ? F32x16{} : exponential_in_range(x); }

/// eˣ within 2 ulp; 0 below -87.3, infinity above 88, NaN for NaN.
STRATA_LANES F32x16 exponential(F32x16 x) {
  return x > 88.0F ? broadcast(std::numeric_limits<float>::infinity()) : exponential_of_negative(x);
}

/// 1/(1 + e⁻ˣ), relatively accurate on both sides, so that gelu and silu keep their small negative tails. Not
/// below 1.6e-38.
STRATA_LANES F32x16 sigmoid(F32x16 x) {
  const F32x16 above = x < -87.0F ? broadcast(-87.0F) : x;
  const F32x16 within = above > 87.0F ? broadcast(87.0F) : above;
  return reciprocal(1.0F + exponential_in_range(-within));
}

/// Complementary error function of x ≥ 0: a Chebyshev fit of its logarithm (Press et al., Numerical
/// Recipes, 6.2), 1.2e-7 relative before rounding. 0 from 10 on.
STRATA_LANES F32x16 erfc_positive(F32x16 positive) {
  const F32x16 x = positive > 10.0F ? broadcast(10.0F) : positive;
  const F32x16 t = reciprocal(1.0F + 0.5F * x);
  F32x16 p = t * 0.17087277F - 0.82215223F;
  p = p * t + 1.48851587F;
  p = p * t - 1.13520398F;
  p = p * t + 0.27886807F;
  p = p * t - 0.18628806F;
  p = p * t + 0.09678418F;
  p = p * t + 0.37409196F;
  p = p * t + 1.00002368F;
  p = p * t - 1.26551223F;
  return t * exponential_of_negative(p - x * x);
}

/// Standard normal distribution function Φ(x) = erfc(-x/√2)/2.
STRATA_LANES F32x16 normal_distribution(F32x16 x) {
  const F32x16 tail = 0.5F * erfc_positive((x < 0.0F ? -x : x) * 0.707106781186547524F);
  return x < 0.0F ? tail : 1.0F - tail;
}

}  // namespace strata::cpu
