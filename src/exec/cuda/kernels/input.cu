#include "exec/cuda/kernels/device.cuh"
#include "exec/cuda/kernels/input.hpp"

namespace strata::cuda {
namespace {

/// Eight pixels a thread and turn: reads over the bus are few and long.
template <typename T>
__global__ void load_pixels(const InputAddresses* from, T* pixels, std::int64_t n, bool aligned) {
  const float* const x = static_cast<const float*>(from->values);
  for (std::int64_t i = flat_index() * pack; i < n; i += flat_stride() * pack) {
    if (aligned && i + pack <= n) {
      float v[pack];
      load_pack(x + i, v);
      store_pack(pixels + i, v);
    } else {
      for (std::int64_t j = i; j < min(n, i + pack); ++j) pixels[j] = from_float<T>(x[j]);
    }
  }
}

__global__ void load_indices(const InputAddresses* from, bool are_targets, std::int32_t* to, std::int64_t n) {
  const std::int32_t* const x = are_targets ? from->targets : static_cast<const std::int32_t*>(from->values);
  for (std::int64_t i = flat_index(); i < n; i += flat_stride()) to[i] = x[i];
}

}  // namespace

void load_input(const InputAddresses* from, DType dtype, void* values, std::int64_t num_values, std::int32_t* targets,
                std::int64_t num_targets, cudaStream_t stream) {
  if (num_values > 0 && dtype == DType::i32) {
    load_indices<<<flat_blocks(num_values), flat_threads, 0, stream>>>(from, false, static_cast<std::int32_t*>(values),
                                                                       num_values);
  } else if (num_values > 0) {
    with_storage(dtype, [&](auto type) {
      load_pixels<<<flat_blocks((num_values + pack - 1) / pack), flat_threads, 0, stream>>>(
          from, static_cast<decltype(type)*>(values), num_values, are_aligned(values));
    });
  }
  if (num_targets > 0) {
    load_indices<<<flat_blocks(num_targets), flat_threads, 0, stream>>>(from, true, targets, num_targets);
  }
  check_launch("load_input");
}

}  // namespace strata::cuda
