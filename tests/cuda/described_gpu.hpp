#pragma once

/// @file
/// A GPU that is described to cuDNN, which plans for it without one.

#include <fmt/core.h>

#include <span>
#include <string>

#include "exec/cuda/cudnn_graph.hpp"

namespace strata::cuda {

/// @param compute_capability · 100. Only shared memory differs by it in what is described.
inline BackendDescriptor gpu(int compute_capability) {
  const std::string properties = fmt::format(
      R"({{"deviceName": "a GPU", "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
           "deviceVer": {}, "driverVer": 13000, "multiProcessorCount": 132, "smClockRateKHz": 1980000,
           "memClockRateKHz": 3201000, "totalGlobalMem": 150000000000, "l2CacheSize": 62914560, "warpSize": 32,
           "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
           "maxThreadsPerSM": 2048, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
           "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {},
           "reservedSharedMemoryPerBlock": 1024}})",
      compute_capability, compute_capability < 900 ? 166912 : 232448);
  BackendDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span(properties));
  device.finalize();
  return device;
}

}  // namespace strata::cuda
