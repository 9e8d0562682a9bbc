#pragma once

/// @file
/// A load of a Program: the host's part, which has samples written into page-locked memory, and the device's, which
/// fetches them from there and rounds them. There are two places in page-locked memory, of which steps take turns: the
/// samples of the next step are written into one while the device fetches those of this one from the other.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>

#include "exec/cuda/device_arena.hpp"
#include "exec/cuda/input_thread.hpp"
#include "exec/cuda/kernels/input.hpp"
#include "exec/cuda/step_values.hpp"
#include "exec/executor.hpp"
#include "exec/kernel_arguments.hpp"

namespace strata::cuda {

class InputLoad {
 public:
  static constexpr std::int64_t num_places = 2;

  /// @param arguments of load_tokens, load_images or load_targets, with device addresses. @p inputs outlives this.
  /// @param steps_per_body of the Program. @param step_values of the stream that queue() is called with.
  InputLoad(const Arguments& arguments, InputSource& inputs, std::int64_t steps_per_body, StepValues& step_values);

  /// The samples of @p step stand ready for queue(), read here where prepare_ahead() has not read them. What was queued
  /// num_places repetitions before has arrived.
  void prepare(std::int64_t step);
  /// Begins to read the samples of @p step on @p thread, for prepare() to find them. What was queued num_places
  /// repetitions before has arrived. What cannot be read is a failure of prepare() alone.
  void prepare_ahead(std::int64_t step, InputThread& thread);
  /// The device's part, always the same call.
  void queue(cudaStream_t stream) const;

 private:
  struct Place {
    PinnedMemory values;
    PinnedMemory targets;
    std::int64_t step = -1;  ///< whose samples these are
  };
  Place& place_of(std::int64_t step) { return places_[static_cast<std::size_t>(step / steps_per_body_ % num_places)]; }
  void read(std::int64_t step);
  InputAddresses addresses_of(std::int64_t step);
  InputSource& inputs_;
  Kernel kernel_;
  DType dtype_;
  std::int64_t steps_per_body_;
  std::int64_t first_sample_;
  std::int64_t num_samples_;
  std::int64_t num_values_;
  std::int64_t num_targets_;
  std::byte* to_;
  std::int32_t* to_targets_;
  std::array<Place, num_places> places_;
  const InputAddresses* addresses_;  ///< on the device, of the step that is queued
  std::future<void> ahead_;
};

}  // namespace strata::cuda
