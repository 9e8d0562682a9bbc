#pragma once

/// @file
/// Counter-based random numbers: value = f(seed, stream, index), no state. Initialisation, dropout and data
/// order index by *global* position, so any sharding of a tensor sees the same numbers.
/// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

#include <array>
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

/// An independent sequence of 32-bit words: word(i) is lane i % 4 of the Philox block whose counter is
/// (i / 4 as 64 bits, stream as 64 bits) under key = seed. Equal (seed, stream, i) give equal words everywhere.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;

  constexpr std::uint32_t word(std::uint64_t index) const {
    const std::uint64_t block = index / 4;
    return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U),
                       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)})[index % 4];
  }
  /// Uniform in [0, 1), 24 bits.
  constexpr float uniform(std::uint64_t index) const { return static_cast<float>(word(index) >> 8U) * 0x1.0p-24F; }
  /// Standard normal; Box-Muller of words 2·index and 2·index + 1.
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
