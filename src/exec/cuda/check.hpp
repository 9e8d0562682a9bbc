#pragma once

/// @file
/// What CUDA's runtime says, as our exceptions.

#include <cuda_runtime_api.h>

#include <cstddef>

namespace strata::cuda {

/// @param what was tried, for the message. @throws OutOfMemory, Unsupported where there is no usable GPU,
/// InternalError.
void check(cudaError_t status, const char* what);

/// After a launch: a wrong configuration shows here. Faults inside a kernel show at the next synchronisation.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

/// @throws Unsupported naming @p kernel where a block of threads cannot have that much shared memory on this GPU.
void check_shared_memory(std::size_t bytes, const char* kernel);

}  // namespace strata::cuda
