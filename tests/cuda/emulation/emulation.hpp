#pragma once

/// @file
/// Enough of CUDA in plain C++ to run our kernels without a GPU: blocks one after the other, the threads of a block as
/// fibers that take turns at barriers and shuffles. Included before each translated .cu file (see translate.py).
///
/// It finds wrong indices, sums and barriers that not all threads reach; it knows nothing of races, memory limits or
/// speed.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define __launch_bounds__(...)
#define __grid_constant__

namespace emulation {

struct LaunchShape {
  LaunchShape(dim3 grid_dims, dim3 block_dims, std::size_t bytes, cudaStream_t on)
      : grid(grid_dims), block(block_dims), shared_bytes(bytes), stream(on) {}
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
/// Runs @p kernel in every thread, when the stream's turn has come. Stops the program where threads wait at different
/// places.
void launch(const LaunchShape& shape, const std::function<void()>& kernel);
/// Kernels that were launched, by this process.
std::int64_t num_launches();
/// Of the running block.
float* dynamic_shared();
/// Until all threads of the block that still run are here. @p place tells barriers from shuffles.
void meet(int place);
float exchange(float value, int mask);

}  // namespace emulation

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

inline void __syncthreads() { emulation::meet(0); }
inline float __shfl_xor_sync(unsigned, float value, int mask) { return emulation::exchange(value, mask); }
inline unsigned __shfl_xor_sync(unsigned, unsigned value, int mask) {
  return std::bit_cast<unsigned>(emulation::exchange(std::bit_cast<float>(value), mask));
}

/// nvcc's form, for functions of any type.
template <typename Result, typename... Parameters>
cudaError_t cudaFuncSetAttribute(Result (*)(Parameters...), cudaFuncAttribute, int) {
  return cudaSuccess;
}

using std::max;
using std::min;
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
