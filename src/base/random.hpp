#pragma once

/// @file
/// Counter-based random numbers: value = f(seed, stream, index), no state. Initialisation, dropout and data
/// order index by *global* position, so any sharding of a tensor sees the same numbers.
/// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace strata {

/// One Philox4x32-10 block: four 32-bit words from a 128-bit counter and a 64-bit key.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// Two independent standard normals.
struct NormalPair {
  float cosine = 0.0F;
  float sine = 0.0F;
};

/// Box-Muller: radius √(-2 ln u) with u = (⌊radius_word/4⌋ + 1)·2⁻³⁰ in (0, 1], angle 2π·angle_word·2⁻³². At most 6.45.
///
/// Every operation is an IEEE one rounded once, and no product meets a sum but in an explicit fma: the bits are the
/// same on every machine, in scalar and in vector code, whatever the compiler may contract. Free of branches, so that a
/// loop over it becomes vector code. Logarithm, sine and cosine are the polynomials of Cephes; the result is within
/// 2e-6.
inline NormalPair normal_pair(std::uint32_t radius_word, std::uint32_t angle_word) {
  // ln u = ln m + e·ln 2 with m in [√½, √2). The offset of the exponent makes it so.
  const auto scaled = static_cast<float>(static_cast<std::int32_t>((radius_word >> 2U) + 1U));  // u · 2³⁰
  const std::int32_t above_root = std::bit_cast<std::int32_t>(scaled) - 0x3f3504f3;
  const std::int32_t exponent = above_root >> 23;
  const float f = std::bit_cast<float>((above_root & 0x007fffff) + 0x3f3504f3) - 1.0F;
  const auto e = static_cast<float>(exponent - 30);
  float p = 7.0376836292e-2F;
  p = std::fma(p, f, -1.1514610310e-1F);
  p = std::fma(p, f, 1.1676998740e-1F);
  p = std::fma(p, f, -1.2420140846e-1F);
  p = std::fma(p, f, 1.4249322787e-1F);
  p = std::fma(p, f, -1.6668057665e-1F);
  p = std::fma(p, f, 2.0000714765e-1F);
  p = std::fma(p, f, -2.4999993993e-1F);
  p = std::fma(p, f, 3.3333331174e-1F);
  const float f2 = f * f;
  float logarithm = std::fma(e, -2.12194440e-4F, p * f * f2);
  logarithm = std::fma(-0.5F, f2, logarithm) + f;
  logarithm = std::fma(e, 0.693359375F, logarithm);
  const float radius = std::sqrt(-2.0F * logarithm);

  // The angle is the nearest quarter turn plus a rest within an eighth of a turn; integers wrap as angles do.
  const std::uint32_t quarter = (angle_word + 0x20000000U) >> 30U;
  const auto rest = static_cast<std::int32_t>(angle_word - (quarter << 30U));
  const float t = static_cast<float>(rest) * 1.46291807926715968e-9F;  // 2π · 2⁻³²
  const float t2 = t * t;
  float s = std::fma(-1.9515295891e-4F, t2, 8.3321608736e-3F);
  s = std::fma(s, t2, -1.6666654611e-1F);
  s = std::fma(s * t2, t, t);
  float c = std::fma(2.443315711809948e-5F, t2, -1.388731625493765e-3F);
  c = std::fma(c, t2, 4.166664568298827e-2F);
  c = std::fma(c * t2, t2, std::fma(-0.5F, t2, 1.0F));
  // Quarter turns: (c, s) → (-s, c) → (-c, -s) → (s, -c).
  const bool swapped = (quarter & 1U) != 0;
  const float x = swapped ? s : c;
  const float y = swapped ? c : s;
  const std::uint32_t sign_x = ((quarter + 1U) & 2U) << 30U;
  const std::uint32_t sign_y = (quarter & 2U) << 30U;
  return {radius * std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ sign_x),
          radius * std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) ^ sign_y)};
}

/// An independent sequence of 32-bit words: word(i) is lane i % 4 of the Philox block whose counter is
/// (i / 4 as 64 bits, stream as 64 bits) under key = seed. Equal (seed, stream, i) give equal words everywhere.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;

  /// Words 4 · number to 4 · number + 3.
  constexpr std::array<std::uint32_t, 4> block(std::uint64_t number) const {
    return philox4x32({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U),
                       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  }
  constexpr std::uint32_t word(std::uint64_t index) const { return block(index / 4)[index % 4]; }
  /// Of a word: uniform in [0, 1), 24 bits.
  static constexpr float uniform_of(std::uint32_t word) { return static_cast<float>(word >> 8U) * 0x1.0p-24F; }
  constexpr float uniform(std::uint64_t index) const { return uniform_of(word(index)); }
  /// Standard normal: of the normal_pair of words 2⌊index/2⌋ and 2⌊index/2⌋ + 1 the cosine for an even index, the sine
  /// for an odd one. A Philox block makes four normals. Do not mix with uniform() on one stream: they share words.
  float normal(std::uint64_t index) const;
};

/// A stream number from a name (FNV-1a, 64 bits): the same tensor has the same stream in every layout.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace strata
