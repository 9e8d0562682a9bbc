#include "exec/cuda/check.hpp"

#include <fmt/core.h>

#include "base/error.hpp"

namespace strata::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const std::string message =
      fmt::format("CUDA: {}: {}: {}", what, cudaGetErrorName(status), cudaGetErrorString(status));
  if (status == cudaErrorMemoryAllocation) throw OutOfMemory("OOM on the GPU: " + message);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) throw Unsupported(message);
  throw InternalError(message);
}

void check_shared_memory(std::size_t bytes, const char* kernel) {
  int device = 0;
  int available = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory");
  if (bytes > static_cast<std::size_t>(available)) {
    throw Unsupported(fmt::format("{} needs {} bytes of shared memory a block, the GPU has {}: the rows are too long",
                                  kernel, bytes, available));
  }
}

}  // namespace strata::cuda
