/// @file
/// A block at a time. The division by the largest code comes last: numbers that are codes of their block come back
/// without a rounding wherever q·a/c is a float.

#include "exec/cpu/kernels/quantize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/quantization.hpp"
#include "exec/cpu/kernels/storage.hpp"

namespace strata::cpu {
namespace {

/// Blocks below which threads cost more than they save.
constexpr std::int64_t serial_blocks = 64;

/// Where the codes of one chunk begin, in bytes, and how many blocks it has.
struct ChunkParts {
  explicit ChunkParts(const QuantizedDims& d)
      : blocks((d.chunk + d.block - 1) / d.block), bytes(quantized_bytes(d.chunk, d.bits, d.block)) {}
  std::int64_t codes() const { return blocks * 4; }
  std::int64_t blocks;
  std::int64_t bytes;
};

/// By bits: a NaN is larger than any number.
template <typename T>
float largest_magnitude(const T* x, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(static_cast<float>(x[i])) & 0x7fffffffU);
  }
  return std::bit_cast<float>(largest);
}

template <int bits>
void put(std::uint8_t* codes, std::int64_t i, int code) {
  if constexpr (bits == 8) {
    codes[i] = static_cast<std::uint8_t>(code);
  } else if (i % 2 == 0) {
    codes[i / 2] = static_cast<std::uint8_t>(code & 15);
  } else {
    codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | (code & 15) << 4);
  }
}

template <int bits>
int code_at(const std::uint8_t* codes, std::int64_t i) {
  if constexpr (bits == 8) {
    return static_cast<std::int8_t>(codes[i]);
  } else {
    const int half = i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
    return (half ^ 8) - 8;
  }
}

/// One block of @p n numbers, of which the first @p given are there and the rest are zeros.
template <int bits, typename T>
void quantize_block(const T* x, std::int64_t given, std::int64_t n, std::uint8_t* magnitude, std::uint8_t* codes) {
  constexpr int top = largest_code(bits);
  const float largest = largest_magnitude(x, given);
  std::memcpy(magnitude, &largest, sizeof largest);
  if (!std::isfinite(largest)) {
    for (std::int64_t i = 0; i < n; ++i) put<bits>(codes, i, top);
    return;
  }
  const float divisor = largest == 0.0F ? 1.0F : largest;
  for (std::int64_t i = 0; i < given; ++i) {
    put<bits>(codes, i, static_cast<int>(std::nearbyint(static_cast<float>(x[i]) / divisor * static_cast<float>(top))));
  }
  for (std::int64_t i = given; i < n; ++i) put<bits>(codes, i, 0);
}

template <int bits>
void add_block(const std::uint8_t* magnitude, const std::uint8_t* codes, std::int64_t n, float* sum) {
  float largest = 0.0F;
  std::memcpy(&largest, magnitude, sizeof largest);
  for (std::int64_t i = 0; i < n; ++i) {
    sum[i] += static_cast<float>(code_at<bits>(codes, i)) * largest / static_cast<float>(largest_code(bits));
  }
}

template <int bits, typename T>
void quantize_chunks(const QuantizedDims& d, std::int64_t nodes, const T* x, std::uint8_t* packed) {
  const ChunkParts part(d);
#pragma omp parallel for schedule(static) if (d.chunks * part.blocks > serial_blocks)
  for (std::int64_t at = 0; at < d.chunks * part.blocks; ++at) {
    const std::int64_t position = at / part.blocks;
    const std::int64_t first = at % part.blocks * d.block;  // of the chunk
    const std::int64_t n = std::min(d.block, d.chunk - first);
    const std::int64_t chunk = position % nodes * (d.chunks / nodes) + position / nodes;
    const std::int64_t begin = std::min(d.elements, chunk * d.chunk + first);
    std::uint8_t* to = packed + position * part.bytes;
    quantize_block<bits>(x + begin, std::min(n, d.elements - begin), n, to + first / d.block * 4,
                         to + part.codes() + first * bits / 8);
  }
  for (std::int64_t position = 0; position < d.chunks; ++position) {
    const std::int64_t end = part.codes() + (d.chunk * bits + 7) / 8;
    std::fill(packed + position * part.bytes + end, packed + (position + 1) * part.bytes, std::uint8_t{0});
  }
}

template <int bits, typename T>
void dequantize_chunks(const QuantizedDims& d, std::int64_t pieces, const std::uint8_t* packed, T* y, bool accumulate) {
  const ChunkParts part(d);
  // A block is summed in parts that lie in the first-level cache.
  constexpr std::int64_t width = 256;
#pragma omp parallel for schedule(static) if (d.chunks * part.blocks > serial_blocks)
  for (std::int64_t at = 0; at < d.chunks * part.blocks; ++at) {
    const std::int64_t chunk = at / part.blocks;
    const std::int64_t first = at % part.blocks * d.block;
    const std::int64_t begin = std::min(d.elements, chunk * d.chunk + first);
    const std::int64_t end = std::min(d.elements, chunk * d.chunk + std::min(d.chunk, first + d.block));
    float sum[width];
    for (std::int64_t from = begin; from < end; from += width) {
      const std::int64_t n = std::min(width, end - from);
      for (std::int64_t i = 0; i < n; ++i) sum[i] = accumulate ? static_cast<float>(y[from + i]) : 0.0F;
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const std::uint8_t* source = packed + (piece * d.chunks + chunk) * part.bytes;
        add_block<bits>(source + first / d.block * 4, source + part.codes() + (from - chunk * d.chunk) * bits / 8, n,
                        sum);
      }
      for (std::int64_t i = 0; i < n; ++i) y[from + i] = static_cast<T>(sum[i]);
    }
  }
}

/// body.operator()<bits, storage>().
template <typename Body>
void with_bits(const QuantizedDims& d, Body&& body) {
  STRATA_INVARIANT(d.block % 16 == 0 && (d.bits == 8 || d.bits == 4), "blocks of 16 numbers, codes of 8 or 4 bits");
  with_storage(d.dtype, [&]<typename T>() {
    if (d.bits == 8) {
      body.template operator()<8, T>();
    } else {
      body.template operator()<4, T>();
    }
  });
}

}  // namespace

void quantize(const QuantizedDims& dims, std::int64_t nodes, const void* x, std::uint8_t* packed) {
  with_bits(dims,
            [&]<int bits, typename T>() { quantize_chunks<bits>(dims, nodes, static_cast<const T*>(x), packed); });
}

void dequantize(const QuantizedDims& dims, std::int64_t pieces, const std::uint8_t* packed, void* y, bool accumulate) {
  with_bits(dims, [&]<int bits, typename T>() {
    dequantize_chunks<bits>(dims, pieces, packed, static_cast<T*>(y), accumulate);
  });
}

}  // namespace strata::cpu
