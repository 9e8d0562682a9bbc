/// @file
/// Masks from the words of philox_words.hpp, compared as integers, a chunk of words at a time.

#include "exec/cpu/kernels/dropout_mask.hpp"

// GCC 12 takes the undefined merge operands of its own intrinsics for uninitialised variables (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "exec/cpu/kernels/philox_words.hpp"
#include "exec/cpu/kernels/vector_math.hpp"

namespace strata::cpu {

namespace {

constexpr std::int64_t chunk_words = 512;  // generated at a time: stays in the first-level cache

STRATA_LANES U32x16 load_words(const std::uint32_t* from) {
  U32x16 words;
  std::memcpy(&words, from, sizeof words);
  return words;
}

/// uniform() >= probability as a comparison of integers: word >> 8 is at least the threshold. probability · 2²⁴ is
/// exact in double.
std::uint32_t keep_threshold(float probability) {
  STRATA_INVARIANT(probability >= 0.0F && probability < 1.0F,
                   fmt::format("dropout probability {} is not in [0, 1)", probability));
  return static_cast<std::uint32_t>(std::ceil(static_cast<double>(probability) * 0x1.0p24));
}

/// Calls body(begin, count, words) for chunks of at most `chunk_words` elements; words may be read up to the next
/// multiple of 16.
template <typename Body>
void for_words(RandomStream random, std::uint64_t first_index, std::int64_t count, Body&& body) {
  // A chunk may begin inside a block of four; the extra group holds that offset and what a vector reads beyond the end.
  alignas(64) std::uint32_t words[chunk_words + philox_group_words];
  for (std::int64_t begin = 0; begin < count; begin += chunk_words) {
    const std::int64_t chunk = std::min(chunk_words, count - begin);
    const std::uint64_t index = first_index + static_cast<std::uint64_t>(begin);
    const auto offset = static_cast<std::int64_t>(index % 4);
    const std::int64_t readable = offset + (chunk + num_lanes - 1) / num_lanes * num_lanes;
    for (std::int64_t word = 0; word < readable; word += philox_group_words) {
      philox_words(random, index / 4 + static_cast<std::uint64_t>(word / 4), words + word);
    }
    body(begin, chunk, words + offset);
  }
}

}  // namespace

void dropout_scale_row(RandomStream random, std::uint64_t first_index, std::int64_t count, float probability,
                       float* scale) {
  const std::uint32_t threshold = keep_threshold(probability);
  const F32x16 kept = broadcast(dropout_scale(probability));
  for_words(random, first_index, count, [&](std::int64_t begin, std::int64_t chunk, const std::uint32_t* words) {
    for_lanes(chunk, [&](std::int64_t i, auto lanes) {
      const auto scale_of = [threshold](auto drawn, auto scale_kept, auto zero) {
        return (drawn >> 8U) >= threshold ? scale_kept : zero;
      };
      store(scale + begin + i, by_registers(scale_of, load_words(words + i), kept, F32x16{}), lanes);
    });
  });
}

void dropout_keep_bits(RandomStream random, std::uint64_t first_index, std::int64_t count, float probability,
                       std::uint32_t* bits, std::int64_t stride) {
  const std::uint32_t threshold = keep_threshold(probability);
  const auto sixteen_bits = [threshold](const std::uint32_t* words) {
    const U32x16 value = load_words(words) >> 8U;
#if defined(__AVX512F__)
    return std::uint32_t{
        _mm512_cmpge_epu32_mask(reinterpret_cast<__m512i>(value), _mm512_set1_epi32(static_cast<int>(threshold)))};
#else
    std::uint32_t result = 0;
    for (int lane = 0; lane < num_lanes; ++lane) {
      result |= static_cast<std::uint32_t>(value[lane] >= threshold) << static_cast<std::uint32_t>(lane);
    }
    return result;
#endif
  };
  for_words(random, first_index, count, [&](std::int64_t begin, std::int64_t chunk, const std::uint32_t* words) {
    for (std::int64_t i = 0; i < chunk; i += 32) {
      std::uint32_t kept = sixteen_bits(words + i);
      if (chunk - i > 16) {
        kept |= sixteen_bits(words + i + 16) << 16U;
      }
      if (chunk - i < 32) {
        kept &= (std::uint32_t{1} << static_cast<std::uint32_t>(chunk - i)) - 1;
      }
      bits[(begin + i) / 32 * stride] = kept;
    }
  });
}

}  // namespace strata::cpu
