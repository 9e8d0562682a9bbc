#pragma once

/// @file
/// Numbers that change from step to step and that kernels read: random streams, factors of optimizers. Kernels find
/// them on the device at addresses that stay, so that a recorded step serves all steps.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/executor.hpp"

namespace strata::cuda {

class StepValues {
 public:
  static constexpr std::size_t slot_bytes = 32;  ///< of a value

  /// @param max_values as many can be added.
  explicit StepValues(std::size_t max_values);

  /// @return where the device finds @p value of the current step.
  template <typename T>
  const T* add(std::function<T(const StepContext&)> value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= slot_bytes);
    STRATA_INVARIANT(writers_.size() < max_values_, "more values of a step than were announced");
    const std::size_t at = writers_.size() * slot_bytes;
    writers_.push_back([value = std::move(value)](const StepContext& context, std::byte* to) {
      const T now = value(context);
      std::memcpy(to, &now, sizeof now);
    });
    return reinterpret_cast<const T*>(device_.data() + at);
  }

  /// On the host, for copy(). What was copied before has arrived.
  void prepare(const StepContext& context) const;
  /// Queues one copy to the device.
  void copy(cudaStream_t stream) const;

 private:
  std::size_t max_values_;
  PinnedMemory host_;
  DeviceArena device_;
  std::vector<std::function<void(const StepContext&, std::byte*)>> writers_;
};

}  // namespace strata::cuda
