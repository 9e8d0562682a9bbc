#pragma once

/// @file
/// A collective of a Program as calls of NCCL that are queued on a stream.

#include <cstdint>
#include <memory>
#include <string>

#include "exec/cuda/communicators.hpp"
#include "exec/cuda/kernel_binding.hpp"
#include "exec/kernel_arguments.hpp"

namespace strata::cuda {

/// One of no Program. @param request whose group is not looked at. @param label outlives what is queued.
/// @throws CommunicationError, see Communicators::check_call().
void queue_collective(const comm::Request& request, Communicators& communicators, int number, const std::string& label,
                      cudaStream_t stream);

struct BoundCollective {
  BoundKernel queue;
  /// That this rank sends each time, counted by the arguments of NCCL's calls when it was queued last, or captured.
  std::shared_ptr<const std::int64_t> sent_bytes;
};

/// NCCL's gathers and scatters have chunks of one size. Where the group's size does not divide the tensor (chunk_of),
/// they are groups of broadcasts and of reductions, one for each chunk.
/// @param arguments with device addresses. @param label outlives the result.
/// @throws Unsupported for a reduction of integers.
BoundCollective bind_collective(const Program& program, const Arguments& arguments, Communicators& communicators,
                                const std::string& label);

}  // namespace strata::cuda
