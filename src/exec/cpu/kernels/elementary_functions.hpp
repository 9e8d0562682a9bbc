#pragma once

/// @file
/// The elementary functions that the kernels need, of sixteen floats. They are written for a register of the machine
/// (of_register) and called for each that sixteen floats take.
///
/// Accuracy, measured against double by tests/unit/exec/test_activation.cpp: exp 2 ulp, erfc 2e-6 relative for |x| ≤
/// 4, sigmoid 4 ulp.

#include <bit>
#include <limits>
#include <type_traits>

#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

namespace of_register {

template <typename Floats>
using WordsOf = std::conditional_t<std::is_same_v<Floats, F32x16>, U32x16, U32x8>;

/// 1/x within 1 ulp, for 2⁻¹²⁶ ≤ |x| ≤ 2¹²⁶; NaN for NaN. A division of sixteen floats takes as long as the rest of a
/// sigmoid.
template <typename Floats>
STRATA_LANES Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
  const Floats estimate = _mm512_maskz_rcp14_ps(0xffff, x);
  return estimate + estimate * (1.0F - x * estimate);
#else
  return 1.0F / x;
#endif
}

/// eˣ within 2 ulp for -87.3 ≤ x ≤ 88; NaN for NaN; anything elsewhere.
template <typename Floats>
STRATA_LANES Floats exponential_in_range(Floats x) {
  // eˣ = 2ⁿ·2ᶠ with x·log₂e = n + f, |f| ≤ ½. Adding 1.5·2²³ leaves the nearest integer in the low bits. Log₂e has two
  // parts, the first of which meets n in an fma.
  constexpr float log2_e = 1.44269502F;
  constexpr float log2_e_rest = 1.92596299e-8F;
  constexpr float magic = 12582912.0F;
  const Floats shifted = x * log2_e + magic;
  const Floats n = shifted - magic;
  const Floats f = (x * log2_e - n) + x * log2_e_rest;
  // Minimax fit of (2ᶠ - 1)/f, 2.6e-9 relative.
  Floats p = f * 1.559467759e-4F + 1.340664391e-3F;
  p = p * f + 9.617692975e-3F;
  p = p * f + 5.550310551e-2F;
  p = p * f + 2.402265278e-1F;
  p = p * f + 6.931472150e-1F;
  p = p * f + 1.0F;
  const WordsOf<Floats> scale = (std::bit_cast<WordsOf<Floats>>(shifted) << 23U) + 0x3f800000U;  // 2ⁿ
  return p * std::bit_cast<Floats>(scale);
}

/// eˣ for x ≤ 0 within 2 ulp; 0 below -87.3, where the result would be subnormal, and for -∞; NaN for NaN.
template <typename Floats>
STRATA_LANES Floats exponential_of_negative(Floats x) {
  return x < -87.3F ? Floats{} : exponential_in_range(x);
}

/// eˣ within 2 ulp; 0 below -87.3, infinity above 88, NaN for NaN.
template <typename Floats>
STRATA_LANES Floats exponential(Floats x) {
  return x > 88.0F ? broadcast<Floats>(std::numeric_limits<float>::infinity()) : exponential_of_negative(x);
}

/// 1/(1 + e⁻ˣ), relatively accurate on both sides, so that gelu and silu keep their small negative tails. Not
/// below 1.6e-38.
template <typename Floats>
STRATA_LANES Floats sigmoid(Floats x) {
  const Floats above = x < -87.0F ? broadcast<Floats>(-87.0F) : x;
  const Floats within = above > 87.0F ? broadcast<Floats>(87.0F) : above;
  return reciprocal(1.0F + exponential_in_range(-within));
}

/// Complementary error function of x ≥ 0: a Chebyshev fit of its logarithm (Press et al., Numerical
/// Recipes, 6.2), 1.2e-7 relative before rounding. 0 from 10 on.
template <typename Floats>
STRATA_LANES Floats erfc_positive(Floats positive) {
  const Floats x = positive > 10.0F ? broadcast<Floats>(10.0F) : positive;
  const Floats t = reciprocal(1.0F + 0.5F * x);
  Floats p = t * 0.17087277F - 0.82215223F;
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
template <typename Floats>
STRATA_LANES Floats normal_distribution(Floats x) {
  const Floats tail = 0.5F * erfc_positive((x < 0.0F ? -x : x) * 0.707106781186547524F);
  return x < 0.0F ? tail : 1.0F - tail;
}

}  // namespace of_register

STRATA_LANES F32x16 exponential_of_negative(F32x16 x) {
  return by_registers([](auto part) { return of_register::exponential_of_negative(part); }, x);
}
STRATA_LANES F32x16 exponential(F32x16 x) {
  return by_registers([](auto part) { return of_register::exponential(part); }, x);
}
STRATA_LANES F32x16 sigmoid(F32x16 x) {
  return by_registers([](auto part) { return of_register::sigmoid(part); }, x);
}
STRATA_LANES F32x16 normal_distribution(F32x16 x) {
  return by_registers([](auto part) { return of_register::normal_distribution(part); }, x);
}

}  // namespace strata::cpu
