#pragma once

/// @file
/// Streams and events of the emulation. Kernels are done when they are queued, after what their stream follows; copies
/// and operations of several ranks take their time, and are moved on whenever somebody asks how far they are.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

namespace emulation {

/// A copy or an operation of several ranks. It begins when those before it are complete.
struct Operation {
  std::vector<std::shared_ptr<Operation>> after;
  std::function<void()> begin;
  std::function<bool()> poll;  ///< once it has begun: true when its results are there
  bool begun = false;
  bool complete = false;
};
using Operations = std::vector<std::shared_ptr<Operation>>;

/// What a stream has queued, or an event has seen queued.
struct Place {
  Operations operations;
  int graph = 0;              ///< the recording that it is part of; 0: none
  std::vector<int> nodes;     ///< of that, which the next one follows
  float milliseconds = 0.0F;  ///< of an event: when it was recorded, see pass_time()
};
Place& place_of(cudaStream_t stream);
Place& place_of(cudaEvent_t event);

/// The graph that is being recorded; 0: none. They are counted from 1.
int recording();
/// Does @p work, which queues operations on the stream that it gets, or records it where the stream is part of a
/// recording; the stream is another one each time that a graph is launched.
void submit_operations(cudaStream_t stream, const std::function<void(cudaStream_t)>& work);
/// Likewise work that is done when it returns: it waits for what the stream follows.
void submit(cudaStream_t stream, const std::function<void()>& work);

/// The device's clock, which stands still otherwise.
void pass_time(float milliseconds);

/// The recordings from now on are refused when they end, until this is called with false.
void refuse_recordings(bool refuse);

/// Queues operations as one piece of work: what follows on @p stream follows all of them.
void queue(cudaStream_t stream, const Operations& operations);
/// What @p stream has queued and is not complete.
Operations pending(cudaStream_t stream);
/// Until what @p stream follows is done.
void wait(cudaStream_t stream);
bool is_complete(Operations& operations);
/// Drops all that is under way, of all streams.
void drop_operations();

}  // namespace emulation
