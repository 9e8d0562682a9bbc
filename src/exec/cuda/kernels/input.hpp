#pragma once

/// @file
/// Samples from the host's page-locked memory, which kernels read where it is, so that values are converted on the way.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.hpp"

namespace strata::cuda {

/// Where the samples of a step stand; both addresses are the host's and the device's, and multiples of 16 bytes.
struct InputAddresses {
  const void* values = nullptr;           ///< f32, or i32 for @c values of that dtype
  const std::int32_t* targets = nullptr;  ///< null where there are none
};

/// @p values = *from's values, rounded to nearest even where @p dtype is bf16, and @p targets = its targets.
/// @param from on the device. @param dtype f32, bf16 or i32.
void load_input(const InputAddresses* from, DType dtype, void* values, std::int64_t num_values, std::int32_t* targets,
                std::int64_t num_targets, cudaStream_t stream);

}  // namespace strata::cuda
