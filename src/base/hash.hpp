#pragma once

/// @file
/// A 64-bit checksum of bytes, for telling whether two things are the same: not for security.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace strata {

/// Multiply-xorshift over 8-byte words (the finaliser of splitmix64), so that every bit of every word counts. @p start
/// chains calls.
inline std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t start = 0x9e3779b97f4a7c15ULL) {
  std::uint64_t hash = start ^ bytes.size();
  const auto mix = [&](std::uint64_t word) {
    hash ^= word;
    hash = (hash ^ (hash >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ (hash >> 27U)) * 0x94d049bb133111ebULL;
    hash ^= hash >> 31U;
  };
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  std::uint64_t tail = 0;
  if (i < bytes.size()) {
    std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
    mix(tail);
  }
  return hash;
}

}  // namespace strata
