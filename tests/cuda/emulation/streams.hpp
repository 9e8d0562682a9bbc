#pragma once

/// @file
/// Streams and events of the emulation. Kernels and copies are done when they are queued, after what their stream
/// follows; operations of several ranks take their time, and are moved on whenever somebody asks how far they are.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

namespace emulation {

/// An operation of several ranks. It begins when those before it are complete.
struct Operation {
  std::vector<std::shared_ptr<Operation>> after;
  std::function<void()> begin;
  std::function<bool()> poll;  ///< once it has begun: true when its results are there
  bool begun = false;
  bool complete = false;
};

/// Queues operations as one piece of work: what follows on @p stream follows all of them.
void queue(cudaStream_t stream, const std::vector<std::shared_ptr<Operation>>& operations);
/// What @p stream has queued and is not complete.
std::vector<std::shared_ptr<Operation>> pending(cudaStream_t stream);
/// Before a kernel or a copy on @p stream.
void wait(cudaStream_t stream);
/// Drops all that is under way, of all streams.
void drop_operations();

}  // namespace emulation
