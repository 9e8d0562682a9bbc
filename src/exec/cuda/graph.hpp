#pragma once

/// @file
/// A CUDA graph: what streams were told to do once, launched as one.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <span>

#include "exec/cuda/event.hpp"

namespace strata::cuda {

class Graph {
 public:
  /// Records what @p queue queues on @p streams, instead of doing it: it forks the first one into the others, and the
  /// graph ends when all are done. @throws whatever queue() throws, and then nothing was recorded.
  Graph(std::span<const std::unique_ptr<Stream>> streams, const std::function<void()>& queue);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Launches of one graph follow each other.
  void launch(cudaStream_t stream) const;

 private:
  cudaGraphExec_t executable_ = nullptr;
};

/// The other streams go on where the first one is now. @param event recorded on the first.
void fork(std::span<const std::unique_ptr<Stream>> streams, Event& event);

}  // namespace strata::cuda
