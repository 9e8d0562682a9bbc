#include "exec/cuda/environment.hpp"

#include <cstdlib>

namespace strata::cuda {

void set_environment(int num_nccl_ranks) {
  // Every stream's work reaches the GPU through one of these, and a stream that waits holds up those that share its
  // own: 8 by default, 32 at most.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (num_nccl_ranks <= 1) return;
  // Loading a kernel at its first launch may wait for the whole GPU, where a message's kernel waits for another rank
  // that waits for the same reason. A rank by itself waits for nobody: eager loading of all that cuDNN and cuBLASLt
  // hold would cost it seconds and memory for nothing.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // Connecting at the first collective of a kind would hold up the host, which nothing watches there.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

}  // namespace strata::cuda
