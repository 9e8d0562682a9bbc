#pragma once

/// @file
/// Stores of whole cache lines that pass by the cache.

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

namespace strata::comm {

inline constexpr std::int64_t kLine = 64;  // bytes

/// Store one cache line around the cache. @p output is 64-byte aligned. SSE2 is part of x86-64; the four quarters meet
/// in one write-combining buffer.
inline void stream_line(std::byte* output, const std::byte* input) {
  for (int quarter = 0; quarter < 4; ++quarter) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(output) + quarter,
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(input) + quarter));
  }
}

}  // namespace strata::comm
