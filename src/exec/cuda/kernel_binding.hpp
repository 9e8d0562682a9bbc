#pragma once

/// @file
/// Instruction → calls that queue CUDA kernels on a stream, with addresses, sizes, attributes and library descriptors
/// resolved once, before the first step.

#include <cuda_runtime_api.h>

#include <functional>

#include "exec/cuda/kernels/token.hpp"
#include "exec/cuda/libraries.hpp"
#include "exec/executor.hpp"
#include "exec/kernel_arguments.hpp"

namespace strata::cuda {

using BoundKernel = std::function<void(const StepContext&, cudaStream_t)>;

/// What binding needs beside the instruction; all outlive the bound kernels.
struct BindingContext {
  Libraries& libraries;
  InputSource& inputs;
  std::uint64_t seed = 0;
  OutOfRange* out_of_range = nullptr;  ///< the device's address of a word that the host reads
};

/// @param arguments with device addresses. @throws Unsupported naming what the GPU's libraries do not have.
BoundKernel bind_kernel(const Program& program, const Arguments& arguments, const BindingContext& context);

}  // namespace strata::cuda
