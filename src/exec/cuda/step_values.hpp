#pragma once

/// @file
/// Numbers that change from step to step and that the kernels of a stream read: random streams, factors of optimizers.
/// Kernels find them on the device at addresses that stay, so that a recorded step serves all steps. Each stream copies
/// its own, so that what one repetition copies follows all that read the numbers of the one before.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/event.hpp"
#include "exec/executor.hpp"

namespace strata::cuda {

class StepValues {
 public:
  static constexpr std::size_t slot_bytes = 32;  ///< of a value

  /// @param max_values as many can be added. @param num_sets on the host: so many repetitions may wait for their copy.
  StepValues(std::size_t max_values, int num_sets);

  /// @param step relative training step, see Instruction. @return where the device finds @p value of that step.
  template <typename T>
  const T* add(int step, std::function<T(const StepContext&)> value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= slot_bytes);
    STRATA_INVARIANT(writers_.size() < max_values_, "more values of a step than were announced");
    writers_.push_back({.step = step, .write = [value = std::move(value)](const StepContext& context, std::byte* to) {
                          const T now = value(context);
                          std::memcpy(to, &now, sizeof now);
                        }});
    return reinterpret_cast<const T*>(device_.data() + writers_.size() * slot_bytes);
  }
  /// Where the device finds the number of the run that was copied last.
  const std::int64_t* run_number() const { return reinterpret_cast<const std::int64_t*>(device_.data()); }

  /// The context of a relative training step; null where its instructions do not run.
  using ContextOf = std::function<const StepContext*(int step)>;
  /// On the host, for copy(@p set). What that set was copied for before has arrived, see copied().
  void prepare(int set, std::int64_t run_number, const ContextOf& context_of) const;
  /// Queues one copy to the device.
  void copy(int set, cudaStream_t stream) const;
  /// Of copy(@p set), with several sets.
  const Event& copied(int set) const { return *copied_[static_cast<std::size_t>(set)]; }

 private:
  struct Writer {
    int step = 0;
    std::function<void(const StepContext&, std::byte*)> write;
  };
  std::size_t set_bytes() const { return (max_values_ + 1) * slot_bytes; }
  std::byte* set_data(int set) const { return host_.data() + static_cast<std::size_t>(set) * set_bytes(); }

  std::size_t max_values_;
  PinnedMemory host_;
  DeviceArena device_;           ///< first the number of the run
  std::vector<Writer> writers_;  ///< of the values behind it
  std::vector<std::unique_ptr<Event>> copied_;
};

}  // namespace strata::cuda
