#pragma once

/// @file
/// A load of a Program: the host's part, which has samples written into page-locked memory, and the copy to the device.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/cuda/device_arena.hpp"
#include "exec/executor.hpp"
#include "exec/kernel_arguments.hpp"

namespace strata::cuda {

class InputLoad {
 public:
  /// @param arguments of load_tokens, load_images or load_targets, with device addresses. @p inputs outlives this.
  InputLoad(const Arguments& arguments, InputSource& inputs);

  /// The samples of @p step stand ready for queue(). What was queued before has arrived.
  void prepare(std::int64_t step);
  /// The copy, always from the same place.
  void queue(cudaStream_t stream) const;

 private:
  InputSource& inputs_;
  Kernel kernel_;
  DType dtype_;
  std::int64_t first_sample_;
  std::int64_t num_samples_;
  std::size_t num_bytes_;
  std::size_t num_targets_;
  std::byte* to_;
  std::byte* to_targets_;
  PinnedMemory values_;
  PinnedMemory targets_;
  std::vector<float> pixels_;  ///< scratch of prepare()
};

}  // namespace strata::cuda
