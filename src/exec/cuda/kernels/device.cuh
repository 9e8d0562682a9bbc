#pragma once

/// @file
/// What our kernels share: storage types, eight values at a time, sums over a block, launch sizes. Arithmetic is f32;
/// no kernel uses atomics, so equal inputs give equal bits.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "exec/cuda/check.hpp"

namespace strata::cuda {

using device_bf16 = __nv_bfloat16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(device_bf16 x) { return __bfloat162float(x); }
template <typename T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline device_bf16 from_float<device_bf16>(float x) {
  return __float2bfloat16_rn(x);
}

/// Calls body(T{}) with float or device_bf16. @throws InternalError for any other type.
template <typename Body>
void with_storage(DType dtype, Body&& body) {
  if (dtype == DType::f32) {
    body(float{});
    return;
  }
  STRATA_INVARIANT(dtype == DType::bf16, "a floating-point tensor");
  body(device_bf16{});
}

/// Eight consecutive values, of which 16-byte accesses move as many as fit: addresses must be multiples of 16 bytes.
constexpr int pack = 8;

__device__ inline void load_pack(const float* from, float (&to)[pack]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}
__device__ inline void load_pack(const device_bf16* from, float (&to)[pack]) {
  union {
    uint4 bits;
    device_bf16 values[pack];
  } word;
  word.bits = *reinterpret_cast<const uint4*>(from);
#pragma unroll
  for (int i = 0; i < pack; ++i) to[i] = to_float(word.values[i]);
}
__device__ inline void store_pack(float* to, const float (&from)[pack]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}
__device__ inline void store_pack(device_bf16* to, const float (&from)[pack]) {
  uint32_t bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = __bfloat16_as_ushort(from_float<device_bf16>(from[2 * i]));
    const std::uint32_t high = __bfloat16_as_ushort(from_float<device_bf16>(from[2 * i + 1]));
    bits[i] = low | high << 16U;
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
}

/// Whether load_pack may be used on all of these: operands are parts of buffers and begin anywhere.
template <typename... Pointers>
bool are_aligned(Pointers... pointers) {
  return (... && (reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0));
}

/// The first @p left of eight values, and zeros for the others.
template <typename T>
__device__ void load_some(const T* from, std::int64_t left, bool aligned, float (&to)[pack]) {
  if (aligned && left >= pack) {
    load_pack(from, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < pack; ++i) to[i] = i < left ? to_float(from[i]) : 0.0F;
}
/// Of eight values the first @p left.
template <typename T>
__device__ void store_some(T* to, std::int64_t left, bool aligned, const float (&from)[pack]) {
  if (aligned && left >= pack) {
    store_pack(to, from);
    return;
  }
#pragma unroll
  for (int i = 0; i < pack; ++i) {
    if (i < left) to[i] = from_float<T>(from[i]);
  }
}

/// Largest grid of the flat kernels, which then step through the tensor: a few blocks of 256 threads for each of the
/// largest GPU's multiprocessors.
constexpr unsigned flat_threads = 256;
inline unsigned flat_blocks(std::int64_t num_items) {
  const std::int64_t blocks = (num_items + flat_threads - 1) / flat_threads;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, 132 * 16));
}
__device__ inline std::int64_t flat_index() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::int64_t flat_stride() { return std::int64_t{gridDim.x} * blockDim.x; }

/// Before a launch of @p function with @p dynamic_bytes of shared memory beside what block_join takes.
/// @throws Unsupported naming @p kernel where the GPU has not that much.
template <typename Function>
void allow_shared_memory(Function* function, std::size_t dynamic_bytes, const char* kernel) {
  constexpr std::size_t static_bytes = 1024;  // block_join's, rounded up
  check_shared_memory(dynamic_bytes + static_bytes, kernel);
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(dynamic_bytes)),
        kernel);
}

struct Sum {
  __device__ static float join(float a, float b) { return a + b; }
};
struct Maximum {
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

/// Joins one value of every thread of a warp, in a fixed order; all threads get the result and must call it.
template <typename Operation>
__device__ float warp_join(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = Operation::join(value, __shfl_xor_sync(0xffffffffU, value, distance));
  }
  return value;
}
__device__ inline float warp_sum(float value) { return warp_join<Sum>(value); }

/// Likewise of the block; blockDim.x is a multiple of 32, at most 1024.
template <typename Operation>
__device__ float block_join(float value, float neutral) {
  __shared__ float of_warp[32];
  value = warp_join<Operation>(value);
  __syncthreads();  // the array may still be read by an earlier call
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_join<Operation>(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : neutral);
}
__device__ inline float block_sum(float value) { return block_join<Sum>(value, 0.0F); }

/// 1 / (1 + exp(-x)).
__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

}  // namespace strata::cuda
