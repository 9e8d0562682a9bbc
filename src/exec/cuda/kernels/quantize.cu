/// @file
/// A warp a block of numbers, eight of them a thread and turn; chunks are lines of the grid. Every operation is rounded
/// by itself, as the CPU's are.

#include <algorithm>
#include <type_traits>

#include "base/quantization.hpp"
#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/quantize.hpp"

namespace strata::cuda {
namespace {

constexpr int warp_threads = 32;
constexpr std::int64_t warp_numbers = warp_threads * pack;

/// Where the codes of one chunk begin, in bytes, how many blocks it has, and all its bytes.
struct ChunkParts {
  explicit ChunkParts(const QuantizedDims& d)
      : blocks((d.chunk + d.block - 1) / d.block),
        codes(blocks * 4),
        bytes(quantized_bytes(d.chunk, d.bits, d.block)) {}
  std::int64_t blocks;
  std::int64_t codes;
  std::int64_t bytes;
};

/// Words of codes that eight numbers are.
template <int bits>
constexpr int pack_words = pack* bits / 32;
template <int bits>
constexpr int word_codes = 32 / bits;

__device__ std::uint32_t warp_maximum(std::uint32_t value) {
  for (int distance = warp_threads / 2; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(0xffffffffU, value, distance));
  }
  return value;
}

template <int bits, typename T>
__global__ void quantize_kernel(QuantizedDims d, ChunkParts part, std::int64_t nodes, const T* x, bool aligned,
                                std::uint8_t* packed) {
  constexpr int top = largest_code(bits);
  const std::int64_t first_of_lane = threadIdx.x % warp_threads * pack;
  for (std::int64_t position = blockIdx.y; position < d.chunks; position += gridDim.y) {
    const std::int64_t chunk = position % nodes * (d.chunks / nodes) + position / nodes;
    for (std::int64_t block = flat_index() / warp_threads; block < part.blocks; block += flat_stride() / warp_threads) {
      const std::int64_t first = block * d.block;  // of the chunk
      const std::int64_t n = min(d.block, d.chunk - first);
      const std::int64_t begin = min(d.elements, chunk * d.chunk + first);
      const std::int64_t given = min(n, d.elements - begin);  // the rest are zeros
      float v[pack];
      std::uint32_t largest = 0;  // by bits: a NaN is larger than any number
      for (std::int64_t i = first_of_lane; i < given; i += warp_numbers) {
        load_some(x + begin + i, given - i, aligned, v);
#pragma unroll
        for (const float value : v) largest = max(largest, __float_as_uint(value) & 0x7fffffffU);
      }
      largest = warp_maximum(largest);
      const bool finite = largest < 0x7f800000U;
      const float divisor = largest == 0 ? 1.0F : __uint_as_float(largest);
      std::uint8_t* const to = packed + position * part.bytes;
      if (first_of_lane == 0) reinterpret_cast<std::uint32_t*>(to)[block] = largest;
      for (std::int64_t i = first_of_lane; i < n; i += warp_numbers) {
        if (n > warp_numbers || i >= given) load_some(x + begin + i, given - i, aligned, v);  // else v is that pack
        auto* const words = reinterpret_cast<std::uint32_t*>(to + part.codes) + (first + i) / word_codes<bits>;
#pragma unroll
        for (int w = 0; w < pack_words<bits>; ++w) {
          std::uint32_t word = 0;
#pragma unroll
          for (int k = 0; k < word_codes<bits>; ++k) {
            const int of_pack = w * word_codes<bits> + k;
            int code = __float2int_rn(__fmul_rn(__fdiv_rn(v[of_pack], divisor), static_cast<float>(top)));
            if (!finite) code = i + of_pack < n ? top : 0;
            word |= (static_cast<std::uint32_t>(code) & ((1U << bits) - 1)) << (bits * k);
          }
          if (i + w * word_codes<bits> < n) words[w] = word;
        }
      }
    }
  }
}

template <int bits, typename T>
__global__ void dequantize_kernel(QuantizedDims d, ChunkParts part, std::int64_t pieces, const std::uint8_t* packed,
                                  T* y, bool aligned, bool accumulate) {
  constexpr auto top = static_cast<float>(largest_code(bits));
  for (std::int64_t chunk = blockIdx.y; chunk < d.chunks; chunk += gridDim.y) {
    for (std::int64_t block = flat_index() / warp_threads; block < part.blocks; block += flat_stride() / warp_threads) {
      const std::int64_t first = block * d.block;
      const std::int64_t begin = min(d.elements, chunk * d.chunk + first);
      const std::int64_t n = min(d.elements, chunk * d.chunk + min(d.chunk, first + d.block)) - begin;
      for (std::int64_t i = threadIdx.x % warp_threads * pack; i < n; i += warp_numbers) {
        float sum[pack] = {};
        if (accumulate) load_some(y + begin + i, n - i, aligned, sum);
        for (std::int64_t piece = 0; piece < pieces; ++piece) {
          const std::uint8_t* const from = packed + (piece * d.chunks + chunk) * part.bytes;
          const float largest = reinterpret_cast<const float*>(from)[block];
          const auto* const words =
              reinterpret_cast<const std::uint32_t*>(from + part.codes) + (first + i) / word_codes<bits>;
#pragma unroll
          for (int w = 0; w < pack_words<bits>; ++w) {
            const std::uint32_t word = i + w * word_codes<bits> < n ? words[w] : 0;
#pragma unroll
            for (int k = 0; k < word_codes<bits>; ++k) {
              const int code = static_cast<int>(word << (32 - bits * (k + 1))) >> (32 - bits);
              float& total = sum[w * word_codes<bits> + k];
              total = __fadd_rn(total, __fdiv_rn(__fmul_rn(static_cast<float>(code), largest), top));
            }
          }
        }
        store_some(y + begin + i, n - i, aligned, sum);
      }
    }
  }
}

/// Calls body(bits, T{}), bits an integral_constant.
template <typename Body>
void with_bits(const QuantizedDims& d, Body&& body) {
  STRATA_INVARIANT(d.block % 16 == 0 && (d.bits == 8 || d.bits == 4), "blocks of 16 numbers, codes of 8 or 4 bits");
  with_storage(d.dtype, [&](auto type) {
    if (d.bits == 8) {
      body(std::integral_constant<int, 8>{}, type);
    } else {
      body(std::integral_constant<int, 4>{}, type);
    }
  });
}

/// Whether every chunk of the plain tensor begins where eight values can be moved at once.
bool chunks_are_aligned(const QuantizedDims& d, const void* plain) {
  return are_aligned(plain) && (d.chunks == 1 || d.chunk % pack == 0);
}

void require_words(const std::uint8_t* packed) {
  STRATA_INVARIANT(reinterpret_cast<std::uintptr_t>(packed) % 4 == 0, "codes are written four bytes at a time");
}

dim3 grid(const QuantizedDims& d, const ChunkParts& part) {
  constexpr std::int64_t most_lines = 65535;  // which then step through the chunks
  return {flat_blocks(part.blocks * warp_threads), static_cast<unsigned>(std::min(d.chunks, most_lines))};
}

}  // namespace

void quantize(const QuantizedDims& d, std::int64_t nodes, const void* x, std::uint8_t* packed, cudaStream_t stream) {
  require_words(packed);
  const ChunkParts part(d);
  with_bits(d, [&](auto width, auto type) {
    constexpr int bits = decltype(width)::value;
    quantize_kernel<bits><<<grid(d, part), flat_threads, 0, stream>>>(
        d, part, nodes, static_cast<const decltype(type)*>(x), chunks_are_aligned(d, x), packed);
  });
  check_launch("quantize");
}

void dequantize(const QuantizedDims& d, std::int64_t pieces, const std::uint8_t* packed, void* y, bool accumulate,
                cudaStream_t stream) {
  require_words(packed);
  const ChunkParts part(d);
  with_bits(d, [&](auto width, auto type) {
    constexpr int bits = decltype(width)::value;
    dequantize_kernel<bits><<<grid(d, part), flat_threads, 0, stream>>>(
        d, part, pieces, packed, static_cast<decltype(type)*>(y), chunks_are_aligned(d, y), accumulate);
  });
  check_launch("dequantize");
}

}  // namespace strata::cuda
