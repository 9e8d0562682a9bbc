#pragma once

/// @file
/// What the GPU is, for tests and results.

#include <cstdint>
#include <string>

namespace strata::cuda {

/// 0 where there is no driver or no GPU: never throws for that.
int num_devices();
/// Of the current device: name, compute capability.
std::string device_name();
/// Of the current device: the same for two ranks if they share it, and for no others.
std::string device_identity();
/// "CUDA 13.0, driver 13.0, cuBLASLt …, cuDNN …", of what this process runs with.
std::string library_versions();

}  // namespace strata::cuda
