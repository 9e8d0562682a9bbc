#pragma once

/// @file
/// base/random.hpp's numbers on the device, bit for bit: words by its own constexpr functions, normals by the same
/// operations in intrinsics that the compiler may not contract.

#include <cstdint>

#include "base/random.hpp"

namespace strata::cuda {

/// Words of a stream by ascending index: four of them cost one block.
class StreamWords {
 public:
  __device__ explicit StreamWords(const RandomStream& stream) : stream_(stream) {}
  __device__ std::uint32_t word(std::uint64_t index) {
    if (index / 4 != block_) {
      block_ = index / 4;
      words_ = stream_.block(block_);
    }
    return words_[index % 4];
  }
  __device__ float uniform(std::uint64_t index) { return RandomStream::uniform_of(word(index)); }

 private:
  RandomStream stream_;
  std::uint64_t block_ = ~std::uint64_t{0};
  std::array<std::uint32_t, 4> words_{};
};

/// Eight neighbouring numbers of a stream: of two blocks of words where they begin with one, whose places the compiler
/// knows; registers cannot be counted through.
__device__ inline void uniforms(const RandomStream& stream, std::uint64_t first, float (&u)[8]) {
  if (first % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::array<std::uint32_t, 4> words = stream.block(first / 4 + static_cast<std::uint64_t>(half));
#pragma unroll
      for (int k = 0; k < 4; ++k) u[half * 4 + k] = RandomStream::uniform_of(words[static_cast<std::size_t>(k)]);
    }
    return;
  }
  StreamWords words(stream);
#pragma unroll
  for (int k = 0; k < 8; ++k) u[k] = words.uniform(first + static_cast<std::uint64_t>(k));
}

/// See strata::normal_pair.
__device__ inline NormalPair device_normal_pair(std::uint32_t radius_word, std::uint32_t angle_word) {
  const float scaled = __int2float_rn(static_cast<std::int32_t>((radius_word >> 2U) + 1U));
  const std::int32_t above_root = __float_as_int(scaled) - 0x3f3504f3;
  const std::int32_t exponent = above_root >> 23;
  const float f = __fadd_rn(__int_as_float((above_root & 0x007fffff) + 0x3f3504f3), -1.0F);
  const float e = __int2float_rn(exponent - 30);
  float p = 7.0376836292e-2F;
  p = __fmaf_rn(p, f, -1.1514610310e-1F);
  p = __fmaf_rn(p, f, 1.1676998740e-1F);
  p = __fmaf_rn(p, f, -1.2420140846e-1F);
  p = __fmaf_rn(p, f, 1.4249322787e-1F);
  p = __fmaf_rn(p, f, -1.6668057665e-1F);
  p = __fmaf_rn(p, f, 2.0000714765e-1F);
  p = __fmaf_rn(p, f, -2.4999993993e-1F);
  p = __fmaf_rn(p, f, 3.3333331174e-1F);
  const float f2 = __fmul_rn(f, f);
  float logarithm = __fmaf_rn(e, -2.12194440e-4F, __fmul_rn(__fmul_rn(p, f), f2));
  logarithm = __fadd_rn(__fmaf_rn(-0.5F, f2, logarithm), f);
  logarithm = __fmaf_rn(e, 0.693359375F, logarithm);
  const float radius = __fsqrt_rn(__fmul_rn(-2.0F, logarithm));

  const std::uint32_t quarter = (angle_word + 0x20000000U) >> 30U;
  const auto rest = static_cast<std::int32_t>(angle_word - (quarter << 30U));
  const float t = __fmul_rn(__int2float_rn(rest), 1.46291807926715968e-9F);
  const float t2 = __fmul_rn(t, t);
  float s = __fmaf_rn(-1.9515295891e-4F, t2, 8.3321608736e-3F);
  s = __fmaf_rn(s, t2, -1.6666654611e-1F);
  s = __fmaf_rn(__fmul_rn(s, t2), t, t);
  float c = __fmaf_rn(2.443315711809948e-5F, t2, -1.388731625493765e-3F);
  c = __fmaf_rn(c, t2, 4.166664568298827e-2F);
  c = __fmaf_rn(__fmul_rn(c, t2), t2, __fmaf_rn(-0.5F, t2, 1.0F));
  const bool swapped = (quarter & 1U) != 0;
  const float x = swapped ? s : c;
  const float y = swapped ? c : s;
  const std::uint32_t sign_x = ((quarter + 1U) & 2U) << 30U;
  const std::uint32_t sign_y = (quarter & 2U) << 30U;
  return {__fmul_rn(radius, __uint_as_float(__float_as_uint(x) ^ sign_x)),
          __fmul_rn(radius, __uint_as_float(__float_as_uint(y) ^ sign_y))};
}

}  // namespace strata::cuda
