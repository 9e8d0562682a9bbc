#pragma once

/// @file
/// Instruction → calls that queue CUDA kernels on a stream, with addresses, sizes, attributes and library descriptors
/// resolved once, before the first step. What a call queues is the same in every step, so that it can be recorded: all
/// that changes from step to step is in memory that the host writes before.

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "exec/cuda/input_load.hpp"
#include "exec/cuda/kernels/token.hpp"
#include "exec/cuda/libraries.hpp"
#include "exec/cuda/step_values.hpp"
#include "exec/executor.hpp"
#include "exec/kernel_arguments.hpp"

namespace strata::cuda {

class BoundKernel {
 public:
  BoundKernel() = default;
  /// @param load the host's part; null: there is none.
  template <std::invocable<cudaStream_t> Call>
  BoundKernel(Call queue, std::shared_ptr<InputLoad> load = nullptr)
      : queue_(std::move(queue)), load_(std::move(load)) {}
  explicit operator bool() const { return static_cast<bool>(queue_); }
  /// True if prepare() writes what queue() reads later.
  bool has_host_part() const { return load_ != nullptr; }
  /// On the host, before the kernel runs in @p step.
  void prepare(std::int64_t step) const {
    if (load_) load_->prepare(step);
  }
  /// Begins prepare() of @p step on @p thread.
  void prepare_ahead(std::int64_t step, InputThread& thread) const {
    if (load_) load_->prepare_ahead(step, thread);
  }
  void queue(cudaStream_t stream) const { queue_(stream); }

 private:
  std::function<void(cudaStream_t)> queue_;
  std::shared_ptr<InputLoad> load_;
};

/// What binding needs beside the instruction; all outlive the bound kernels.
struct BindingContext {
  Libraries& libraries;
  InputSource& inputs;
  StepValues& step_values;  ///< of the instruction's stream
  std::uint64_t seed = 0;
  OutOfRange* out_of_range = nullptr;  ///< the device's address of a word that the host reads
};

/// @param arguments with device addresses. @throws Unsupported naming what the GPU's libraries do not have.
BoundKernel bind_kernel(const Program& program, const Arguments& arguments, const BindingContext& context);

/// Whether one launch can do both: optimizer updates of one kind and step, with gradients of one dtype.
bool share_launch(const Program& program, const Instruction& a, const Instruction& b);

/// As few launches as there can be (kernels/optimizer.hpp) for all of @p updates, of which any two share_launch().
/// @param values of their stream.
BoundKernel bind_updates(std::span<const Arguments> updates, StepValues& values);

}  // namespace strata::cuda
